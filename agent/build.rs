//! Records the compiler's version in the agent, so that a rebuild can use the same one.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = env::var_os("RUSTC").expect("cargo names its compiler");
    let output = Command::new(compiler).arg("--version").output();
    let version = output.expect("the compiler prints its version").stdout;
    let version = String::from_utf8_lossy(&version);
    println!("cargo::rustc-env=TARE_COMPILER={}", version.trim());
}
