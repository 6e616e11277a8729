package tare.mahout;

import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.SequenceFile;
import org.apache.hadoop.io.Text;
import org.apache.mahout.clustering.Cluster;
import org.apache.mahout.clustering.iterator.ClusterWritable;
import org.apache.mahout.clustering.kmeans.Kluster;
import org.apache.mahout.common.distance.EuclideanDistanceMeasure;
import org.apache.mahout.math.DenseVector;
import org.apache.mahout.math.Vector;

/** Writes the centres that Mahout's K-Means begins with, and tells in plain text what it found. */
public final class Centres {
    private Centres() {}

    /**
     * Takes "write", a file, how many centres and dimensions, how far centres are apart in each
     * dimension and where the first is; or "tell", K-Means' folder and the folder to write.
     */
    public static void main(String[] given) throws IOException {
        Configuration hadoop = new Configuration();
        if (given[0].equals("write")) {
            Vector first = new DenseVector(Integer.parseInt(given[3]));
            first.assign(Double.parseDouble(given[5]));
            write(hadoop, new Path(given[1]), Integer.parseInt(given[2]), first,
                Double.parseDouble(given[4]));
        } else {
            tell(hadoop, new Path(given[1]), new Path(given[2], "part-0"));
        }
    }

    private static void write(
            Configuration hadoop, Path file, int count, Vector first, double apart)
            throws IOException {
        try (SequenceFile.Writer out = SequenceFile.createWriter(
                hadoop,
                SequenceFile.Writer.file(file),
                SequenceFile.Writer.keyClass(Text.class),
                SequenceFile.Writer.valueClass(Kluster.class))) {
            for (int number = 0; number < count; number++) {
                Vector centre = first.plus(number * apart);
                Kluster cluster = new Kluster(centre, number, new EuclideanDistanceMeasure());
                out.append(new Text(cluster.getIdentifier()), cluster);
            }
        }
    }

    /**
     * Writes a line for each centre: how many points made it, how many were put to it at the end,
     * and what those that made it add up to in each dimension.
     */
    private static void tell(Configuration hadoop, Path folder, Path file) throws IOException {
        FileSystem files = FileSystem.get(hadoop);
        Map<Integer, Long> put = new HashMap<>();
        for (FileStatus part : files.globStatus(new Path(folder, "clusteredPoints/part-*"))) {
            try (SequenceFile.Reader in = reader(hadoop, part)) {
                IntWritable cluster = new IntWritable();
                while (in.next(cluster)) {
                    put.merge(cluster.get(), 1L, Long::sum);
                }
            }
        }
        try (Writer out =
                new OutputStreamWriter(files.create(file), StandardCharsets.US_ASCII)) {
            for (FileStatus part : files.globStatus(new Path(folder, "clusters-*-final/part-*"))) {
                try (SequenceFile.Reader in = reader(hadoop, part)) {
                    IntWritable number = new IntWritable();
                    ClusterWritable found = new ClusterWritable();
                    while (in.next(number, found)) {
                        Cluster cluster = found.getValue();
                        out.write(line(cluster, put.getOrDefault(cluster.getId(), 0L)));
                    }
                }
            }
        }
    }

    private static SequenceFile.Reader reader(Configuration hadoop, FileStatus part)
            throws IOException {
        return new SequenceFile.Reader(hadoop, SequenceFile.Reader.file(part.getPath()));
    }

    private static String line(Cluster cluster, long put) {
        long points = cluster.getNumObservations();
        StringBuilder line = new StringBuilder().append(points).append('\t').append(put);
        for (int place = 0; place < cluster.getCenter().size(); place++) {
            // Points are whole numbers, and so is what they add up to.
            line.append('\t').append(Math.round(cluster.getCenter().get(place) * points));
        }
        return line.append('\n').toString();
    }
}
