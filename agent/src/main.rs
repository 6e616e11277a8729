fn main() {
    println!("tare-agent");
}
