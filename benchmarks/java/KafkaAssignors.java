import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.TopicPartition;

/**
 * Runs Kafka's assignors on request. Lines on standard input: "case FILE ASSIGNOR" reads a case, "run" assigns it once and answers with
 * the nanoseconds that assign() took, the number of partitions assigned, and the fewest and the most that a member got; "write FILE"
 * assigns it and writes lines "ID OWNED".
 *
 * <p>A case is a text file: "queue NAME COUNT" and "member ID GENERATION QUEUES OWNED", separated by tabs, where QUEUES is a list of
 * queue indexes and OWNED one of index:partition, both separated by commas.
 */
public final class KafkaAssignors {
    private final Map<String, Integer> counts = new HashMap<>();
    private final Map<String, Subscription> subscriptions = new HashMap<>();
    private final String name;

    private KafkaAssignors(Path file, String name) throws Exception {
        this.name = name;
        List<String> topics = new ArrayList<>();
        try (BufferedReader lines = Files.newBufferedReader(file)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] field = line.split("\t", -1);
                if (field[0].equals("queue")) {
                    topics.add(field[1]);
                    counts.put(field[1], Integer.parseInt(field[2]));
                } else {
                    subscriptions.put(field[1], subscription(topics, field));
                }
            }
        }
    }

    @SuppressWarnings("removal") // it will go, but there is no other way yet to say who a member is
    private Subscription subscription(List<String> topics, String[] field) {
        int generation = Integer.parseInt(field[2]);
        List<String> wanted = new ArrayList<>();
        for (String index : field[3].split(",")) {
            wanted.add(topics.get(Integer.parseInt(index)));
        }
        List<TopicPartition> owned = new ArrayList<>();
        for (String pair : field[4].isEmpty() ? new String[0] : field[4].split(",")) {
            int colon = pair.indexOf(':');
            owned.add(
                    new TopicPartition(
                            topics.get(Integer.parseInt(pair.substring(0, colon))),
                            Integer.parseInt(pair.substring(colon + 1))));
        }
        AbstractPartitionAssignor member = assignor(); // as in a consumer: it packs what it owns as its own protocol does
        if (!owned.isEmpty()) {
            ConsumerGroupMetadata group = new ConsumerGroupMetadata("group", generation, field[1], Optional.empty());
            member.onAssignment(new Assignment(owned), group);
        }
        return new Subscription(
                wanted, member.subscriptionUserData(new HashSet<>(wanted)), owned, generation, Optional.empty());
    }

    private AbstractPartitionAssignor assignor() {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private Map<String, List<TopicPartition>> assign(long[] took) {
        AbstractPartitionAssignor assignor = assignor();
        Map<String, Integer> partitions = new HashMap<>(counts);
        Map<String, Subscription> members = new HashMap<>(subscriptions);
        members.values().forEach(s -> { if (s.userData() != null) s.userData().rewind(); });
        long began = System.nanoTime();
        Map<String, List<TopicPartition>> result = assignor.assign(partitions, members);
        took[0] = System.nanoTime() - began;
        return result;
    }

    private String run() {
        long[] took = new long[1];
        Map<String, List<TopicPartition>> result = assign(took);
        int all = 0, fewest = Integer.MAX_VALUE, most = 0;
        for (List<TopicPartition> mine : result.values()) {
            all += mine.size();
            fewest = Math.min(fewest, mine.size());
            most = Math.max(most, mine.size());
        }
        return took[0] + " " + all + " " + fewest + " " + most;
    }

    private String write(Path file) throws Exception {
        List<String> lines = new ArrayList<>();
        assign(new long[1]).forEach(
                (member, mine) -> {
                    StringBuilder line = new StringBuilder(member).append('\t');
                    for (TopicPartition partition : mine) {
                        line.append(partition.topic()).append(':').append(partition.partition()).append(',');
                    }
                    lines.add(line.substring(0, line.length() - (mine.isEmpty() ? 0 : 1)));
                });
        Files.write(file, lines);
        return "written";
    }

    public static void main(String[] args) throws Exception {
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        KafkaAssignors assignors = null;
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            if (line.equals("run")) {
                System.out.println(assignors.run());
            } else if (line.startsWith("write")) {
                System.out.println(assignors.write(Path.of(line.split("\t")[1])));
            } else {
                String[] word = line.split("\t");
                assignors = null; // the former case can be collected now
                assignors = new KafkaAssignors(Path.of(word[1]), word[2]);
                System.out.println("ready");
            }
        }
    }
}
