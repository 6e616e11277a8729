package tare.spark;

import java.io.Serializable;
import java.util.Arrays;
import java.util.Comparator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.examples.terasort.TeraInputFormat;
import org.apache.hadoop.examples.terasort.TeraOutputFormat;
import org.apache.hadoop.io.Text;
import org.apache.spark.Partitioner;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/** Sorts TeraGen's records, read and written by Hadoop's own classes for them. */
public final class TeraSort {
    private TeraSort() {}

    /** Takes the folder to read, the folder to write, and into how many files. */
    public static void main(String[] given) {
        int reduces = Integer.parseInt(given[2]);
        try (JavaSparkContext context = new JavaSparkContext(new SparkConf().setAppName("terasort"))) {
            Configuration hadoop = context.hadoopConfiguration();
            context.newAPIHadoopFile(
                    given[0], TeraInputFormat.class, Text.class, Text.class, hadoop)
                .mapToPair(one -> new Tuple2<>(one._1().copyBytes(), one._2().copyBytes()))
                .repartitionAndSortWithinPartitions(new EvenRanges(reduces), new ByBytes())
                .mapToPair(one -> new Tuple2<>(new Text(one._1()), new Text(one._2())))
                .saveAsNewAPIHadoopFile(
                    given[1], Text.class, Text.class, TeraOutputFormat.class, hadoop);
        }
    }

    /** Bytes in their own order, the first one first, none of them negative. */
    private static final class ByBytes implements Comparator<byte[]>, Serializable {
        private static final long serialVersionUID = 1;

        @Override
        public int compare(byte[] one, byte[] other) {
            return Arrays.compareUnsigned(one, other);
        }
    }

    /** Ranges of the same width, which suits TeraGen's keys: all are as likely. */
    private static final class EvenRanges extends Partitioner {
        private static final long serialVersionUID = 1;
        private final int count;

        EvenRanges(int count) {
            this.count = count;
        }

        @Override
        public int numPartitions() {
            return count;
        }

        @Override
        public int getPartition(Object key) {
            byte[] bytes = (byte[]) key;
            long first = 0;
            for (int place = 0; place < 4; place++) {
                first = first << 8 | bytes[place] & 0xff;
            }
            return (int) (first * count >>> 32);
        }
    }
}
