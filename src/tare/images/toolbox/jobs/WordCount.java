package tare.spark;

import java.util.Arrays;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/** Counts words as Hadoop's WordCount does: those between white space, each line "word TAB count". */
public final class WordCount {
    private WordCount() {}

    /** Takes the folder to read, the folder to write, and into how many files. */
    public static void main(String[] given) {
        int reduces = Integer.parseInt(given[2]);
        try (JavaSparkContext context = new JavaSparkContext(new SparkConf().setAppName("wordcount"))) {
            context.textFile(given[0], 1)
                .flatMap(line -> Arrays.asList(line.split("[ \\t\\n\\r\\f]+")).iterator())
                .filter(word -> !word.isEmpty())
                .mapToPair(word -> new Tuple2<>(word, 1L))
                .reduceByKey(Long::sum, reduces)
                .map(counted -> counted._1() + "\t" + counted._2())
                .saveAsTextFile(given[1]);
        }
    }
}
