//! Tells the agent which compiler built it: whoever builds it anew takes the same one.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = env::var_os("RUSTC").expect("cargo names its compiler");
    let told = Command::new(compiler).arg("--version").output();
    let told = told.expect("the compiler tells its version").stdout;
    let told = String::from_utf8_lossy(&told);
    println!("cargo::rustc-env=TARE_COMPILER={}", told.trim());
}
