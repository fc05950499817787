import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A process of the benchmark of rebalances, with Kafka's own client. It is told what to do by lines on standard input.
 *
 * <ul>
 *   <li>"consume TOPIC NAME=VALUE…": prints "ready", joins at "go", leaves at the next line. It prints lines "WHAT MILLISECONDS PARTITIONS", separated
 *       by tabs, where WHAT is "assigned", "revoked" or "delivered".
 *   <li>"produce TOPIC PARTITIONS TICK_MS TICKS NAME=VALUE…": at each tick, it writes a message to every partition whose turn it is, until a line comes.
 * </ul>
 */
public final class KafkaRebalance {
    private static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in));

    public static void main(String[] words) throws Exception {
        if (words[0].equals("consume")) {
            consume(words[1], settings(words, 2));
        } else {
            produce(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), Integer.parseInt(words[4]), settings(words, 5));
        }
    }

    private static Map<String, Object> settings(String[] words, int first) {
        Map<String, Object> found = new HashMap<>();
        for (int i = first; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            found.put(pair[0], pair[1]);
        }
        return found;
    }

    private static void consume(String topic, Map<String, Object> settings) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.partitionsFor(topic); // it is connected, and knows the topic
            System.out.println("ready");
            IN.readLine();
            Thread told = listener();
            consumer.subscribe(java.util.List.of(topic), new Told());
            while (told.isAlive()) {
                tell("delivered", consumer.poll(Duration.ofMillis(50)).partitions());
            }
        }
    }

    /** A thread that lives until the next line is there. */
    private static Thread listener() {
        Thread thread = new Thread(() -> {
            try {
                IN.readLine();
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static void tell(String what, Collection<TopicPartition> partitions) {
        if (!partitions.isEmpty()) {
            String numbers = partitions.stream().map(p -> String.valueOf(p.partition())).collect(Collectors.joining(" "));
            System.out.println(what + "\t" + System.currentTimeMillis() + "\t" + numbers);
            System.out.flush();
        }
    }

    private static final class Told implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell("revoked", partitions);
        }
    }

    private static void produce(String topic, int partitions, int tickMs, int ticks, Map<String, Object> settings) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(topic);
            System.out.println("ready");
            IN.readLine();
            Thread told = listener();
            long due = System.nanoTime();
            for (int tick = 0; told.isAlive(); tick++, due += tickMs * 1_000_000L) {
                told.join(Duration.ofNanos(Math.max(1_000_000L, due - System.nanoTime())).toMillis());
                for (int p = tick % ticks; p < partitions; p += ticks) {
                    producer.send(new ProducerRecord<>(topic, p, null, ("message " + tick).getBytes()));
                }
            }
        }
    }
}
