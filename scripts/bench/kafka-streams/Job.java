// The job of `finaz stream` in Kafka Streams: decode, filter by instrument, skip what was seen (a persistent store with its
// changelog), ema(20) and count of each instrument (another). At least once, one thread, a commit each second.
//   java -cp 'JARS/*' Job.java BROKERS TOPIC RECORDS FOLDER APPLICATION
// Says "first", "warm" after a fifth of RECORDS, "done" after all of them, with how many were counted; then it waits to be killed.
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonToken;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

class Job implements Processor<byte[], byte[], Void, Void> {
    private static final int PERIOD = 20;
    private static final JsonFactory JSON = new JsonFactory();
    private static final byte[] THERE = {1};
    private static final Set<String> INSTRUMENTS = new HashSet<>();
    // One thread: all partitions count together.
    private static long records, counted, wanted;
    private KeyValueStore<byte[], byte[]> seen, averages;

    public static void main(String[] args) throws Exception {
        wanted = Long.parseLong(args[2]);
        for (int n = 0; n < 20; n++) INSTRUMENTS.add(String.format("bench.%02d", n));
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[4]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[3]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.AT_LEAST_ONCE);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        var bytes = Serdes.ByteArray();
        var seen = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("seen"), bytes, bytes);
        var averages = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("averages"), bytes, bytes);
        Topology topology = new Topology();
        topology.addSource("in", bytes.deserializer(), bytes.deserializer(), args[1]);
        topology.addProcessor("job", Job::new, "in");
        topology.addStateStore(seen, "job");
        topology.addStateStore(averages.withCachingEnabled(), "job");
        new KafkaStreams(topology, settings).start();
        Thread.currentThread().join();
    }

    @Override
    public void init(ProcessorContext<Void, Void> context) {
        seen = context.getStateStore("seen");
        averages = context.getStateStore("averages");
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
        if (records == 0) say("first");
        take(record.value());
        records += 1;
        if (records == wanted / 5) say("warm");
        if (records == wanted) say("done");
    }

    private void take(byte[] value) {
        String id = null, instrument = null;
        double close = 0;
        try (var parser = JSON.createParser(value)) {
            parser.nextToken();
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                String name = parser.currentName();
                parser.nextToken();
                switch (name) {
                    case "event_id" -> id = parser.getText();
                    case "instrument" -> instrument = parser.getText();
                    case "close" -> close = parser.getDoubleValue();
                    default -> { }
                }
            }
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
        if (!INSTRUMENTS.contains(instrument)) return;
        if (seen.putIfAbsent(id.getBytes(StandardCharsets.UTF_8), THERE) != null) return;
        byte[] key = instrument.getBytes(StandardCharsets.UTF_8);
        byte[] held = averages.get(key);
        long count = 0;
        double level = 0;
        if (held != null) {
            ByteBuffer read = ByteBuffer.wrap(held);
            count = read.getLong();
            level = read.getDouble();
        }
        count += 1;
        if (count > PERIOD) level += (close - level) * (2.0 / (PERIOD + 1));
        else level = count == PERIOD ? (level + close) / PERIOD : level + close;
        averages.put(key, ByteBuffer.allocate(16).putLong(count).putDouble(level).array());
        counted += 1;
    }

    private static void say(String word) {
        System.out.println(word + " " + counted);
        System.out.flush();
    }
}
