package tare.spark;

import org.apache.spark.sql.SparkSession;

/** Asks tables of comma-separated values one query of SQL, and writes its one column of text. */
public final class Query {
    private Query() {}

    /** Takes the folder to write, the query, and of each table its name, its columns and its folder. */
    public static void main(String[] given) {
        SparkSession session = SparkSession.builder().appName("query").getOrCreate();
        for (int place = 2; place < given.length; place += 3) {
            session.read()
                .schema(given[place + 1])
                .csv(given[place + 2])
                .createOrReplaceTempView(given[place]);
        }
        session.sql(given[1]).write().text(given[0]);
        session.stop();
    }
}
