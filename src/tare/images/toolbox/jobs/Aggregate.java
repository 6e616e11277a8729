package tare.mapreduce;

import java.io.IOException;
import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.reduce.LongSumReducer;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/** Adds the last column of comma-separated values up by the first. */
public final class Aggregate extends Configured implements Tool {
    /** Takes Hadoop's own options, the folder to read and the folder to write. */
    public static void main(String[] given) throws Exception {
        System.exit(ToolRunner.run(new Aggregate(), given));
    }

    @Override
    public int run(String[] given) throws Exception {
        Job job = Job.getInstance(getConf(), "aggregate");
        job.setJarByClass(Aggregate.class);
        job.setMapperClass(FirstAndLast.class);
        job.setCombinerClass(LongSumReducer.class);
        job.setReducerClass(LongSumReducer.class);
        job.setOutputKeyClass(Text.class);
        job.setOutputValueClass(LongWritable.class);
        FileInputFormat.addInputPath(job, new Path(given[0]));
        FileOutputFormat.setOutputPath(job, new Path(given[1]));
        return job.waitForCompletion(true) ? 0 : 1;
    }

    /** Gives each row's first column with its last. */
    public static final class FirstAndLast extends Mapper<LongWritable, Text, Text, LongWritable> {
        private final Text name = new Text();
        private final LongWritable amount = new LongWritable();

        @Override
        protected void map(LongWritable at, Text row, Context context)
                throws IOException, InterruptedException {
            String line = row.toString();
            name.set(line.substring(0, line.indexOf(',')));
            amount.set(Long.parseLong(line.substring(line.lastIndexOf(',') + 1)));
            context.write(name, amount);
        }
    }
}
