import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What the tests ask of a broker, with Kafka's own client. Each line on standard input is a request of words separated by tabs, and is answered with
 * one line, "done" or "failed" with a reason:
 *
 * <ul>
 *   <li>"create TOPIC PARTITIONS", "grow TOPIC PARTITIONS", "delete TOPIC"
 *   <li>"trim TOPIC PARTITION OFFSET": the messages below that offset are removed, as retention does it
 *   <li>"write TOPIC FILE ACKNOWLEDGED": sends a message for each line "KEY VALUE MILLISECONDS" of a file ("-" is no key), and writes a line
 *       "PARTITION OFFSET" for each into another file
 *   <li>"read TOPIC FILE": writes all messages into a file, each "PARTITION OFFSET KEY VALUE MILLISECONDS NAME=VALUE,…"
 * </ul>
 */
public final class KafkaClient {
    private static final long WAIT_S = 60;

    private final Map<String, Object> settings;
    private final Admin admin;

    private KafkaClient(String servers) {
        settings = Map.of("bootstrap.servers", servers);
        admin = Admin.create(settings);
    }

    public static void main(String[] arguments) throws Exception {
        KafkaClient client = new KafkaClient(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer = "done";
            try {
                client.answer(line.split("\t"));
            } catch (Exception error) {
                answer = "failed: " + String.valueOf(error).replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
        client.admin.close();
    }

    private void answer(String[] words) throws Exception {
        String topic = words[1];
        switch (words[0]) {
            case "create" -> admin.createTopics(List.of(new NewTopic(topic, Integer.parseInt(words[2]), (short) 1))).all().get();
            case "grow" -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(Integer.parseInt(words[2])))).all().get();
            case "delete" -> admin.deleteTopics(List.of(topic)).all().get();
            case "trim" -> {
                TopicPartition place = new TopicPartition(topic, Integer.parseInt(words[2]));
                admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(Long.parseLong(words[3])))).all().get();
            }
            case "write" -> write(topic, Path.of(words[2]), Path.of(words[3]));
            case "read" -> read(topic, Path.of(words[2]));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void write(String topic, Path file, Path acknowledged) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<String> places = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String line : Files.readAllLines(file)) {
                String[] parts = line.split("\t");
                byte[] key = parts[0].equals("-") ? null : bytes(parts[0]);
                ProducerRecord<byte[], byte[]> message =
                        new ProducerRecord<>(topic, null, Long.parseLong(parts[2]), key, bytes(parts[1]));
                message.headers().add("trace", bytes("t-" + parts[1]));
                sent.add(producer.send(message));
            }
            producer.flush();
        }
        for (Future<RecordMetadata> one : sent) {
            places.add(one.get().partition() + "\t" + one.get().offset());
        }
        Files.write(acknowledged, places);
    }

    private void read(String topic, Path file) throws Exception {
        List<String> lines = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Collection<TopicPartition> places =
                    consumer.partitionsFor(topic).stream().map(info -> new TopicPartition(topic, info.partition())).toList();
            consumer.assign(places);
            consumer.seekToBeginning(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            long until = System.nanoTime() + Duration.ofSeconds(WAIT_S).toNanos();
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException("the messages do not come");
                }
                for (ConsumerRecord<byte[], byte[]> message : consumer.poll(Duration.ofMillis(100))) {
                    lines.add(plain(message));
                }
            }
        }
        Files.write(file, lines);
    }

    private static String plain(ConsumerRecord<byte[], byte[]> message) {
        List<String> headers = new ArrayList<>();
        for (Header header : message.headers()) {
            headers.add(header.key() + "=" + text(header.value()));
        }
        String key = message.key() == null ? "-" : text(message.key());
        return String.join(
                "\t",
                String.valueOf(message.partition()),
                String.valueOf(message.offset()),
                key,
                text(message.value()),
                String.valueOf(message.timestamp()),
                String.join(",", headers));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
