//! The machine's network interface: init sets it up as the kernel's command line states, or checks it
//! if the host has set it up. The proof describes it.

use crate::measure::{proof, sysfs};
use crate::sys;
use serde_json::{json, Value};
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The kernel parameter, and for a process the environment variable.
pub const WORD: &str = "tare.net";
pub const VARIABLE: &str = "TARE_NET";

/// How long a link may take to come up.
const LINK_WAIT: Duration = Duration::from_secs(5);

/// What the host wants the interface to be: `10.1.2.3/24,mtu=1500`.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    address: Ipv4Addr,
    prefix: u8,
    mtu: Option<u32>,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |what: &str| format!("{WORD}={text}: {what}");
        let mut parts = text.split(',');
        let (address, prefix) = parts
            .next()
            .and_then(|first| first.split_once('/'))
            .ok_or_else(|| bad("ADDRESS/PREFIX is missing"))?;
        let mut wanted = Self {
            address: address.parse().map_err(|_| bad("not an IPv4 address"))?,
            prefix: prefix.parse().map_err(|_| bad("not a prefix length"))?,
            mtu: None,
        };
        if !(1..=32).contains(&wanted.prefix) {
            return Err(bad("the prefix length is not 1 to 32"));
        }
        for part in parts {
            match part.split_once('=') {
                Some(("mtu", mtu)) => {
                    let mtu = mtu.parse().map_err(|_| bad("the MTU is not a number"))?;
                    wanted.mtu = Some(mtu);
                }
                _ => return Err(bad(&format!("'{part}' is not known"))),
            }
        }
        Ok(wanted)
    }
}

/// Set the interface up, and describe the result.
pub fn set_up(text: &str) -> Value {
    describe(text, |wanted| {
        let name = proof::nic_names()
            .into_iter()
            .next()
            .ok_or("this machine has no network interface: no driver took its device")?;
        raise(&name, wanted)?;
        Ok(name)
    })
}

/// Set the interface with a hardware address up, and describe the result.
pub fn set_up_card(mac: &str, text: &str) -> Value {
    describe(text, |wanted| {
        let since = Instant::now();
        let name = loop {
            let found = proof::interface_names()
                .into_iter()
                .find(|name| hardware_address(name).as_deref() == Some(mac));
            match found {
                Some(name) => break name,
                None if since.elapsed() > LINK_WAIT => {
                    return Err(format!(
                        "no network interface here has the hardware address {mac}"
                    ))
                }
                // Its driver may be loaded only now.
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        raise(&name, wanted)?;
        Ok(name)
    })
}

/// The hardware address of an interface, in lower case.
pub fn hardware_address(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/address")).ok()?;
    Some(text.trim().to_ascii_lowercase())
}

fn raise(name: &str, wanted: &Wanted) -> Result<(), String> {
    let at = |what: &str, error: std::io::Error| format!("{name}: {what}: {error}");
    if let Some(mtu) = wanted.mtu {
        sys::set_mtu(name, mtu).map_err(|error| at(&format!("MTU {mtu}"), error))?;
    }
    sys::set_address(name, wanted.address, wanted.prefix)
        .map_err(|error| at("its address cannot be set", error))?;
    sys::raise_interface(name).map_err(|error| at("it cannot be brought up", error))
}

/// Check that the interface is set up as the host states, and describe it.
pub fn check_existing(text: &str) -> Value {
    describe(text, |wanted| {
        let all = proof::interface_names();
        let has = |name: &String| sys::address(name).is_ok_and(|found| found == wanted.address);
        all.into_iter()
            .find(has)
            .ok_or_else(|| format!("no interface here has the address {}", wanted.address))
    })
}

/// Describe the interface whose address the machine used to connect to its host.
pub fn describe_address(address: IpAddr) -> Value {
    let mut about = match address {
        IpAddr::V4(address) => check_existing(&format!("{address}/32")),
        IpAddr::V6(_) => json!({ "error": format!("{address} is not an IPv4 address") }),
    };
    about["address"] = address.to_string().into();
    about
}

fn describe(text: &str, prepare: impl FnOnce(&Wanted) -> Result<String, String>) -> Value {
    let prepared = text
        .parse()
        .and_then(|wanted| Ok((prepare(&wanted)?, wanted)));
    let (name, wanted) = match prepared {
        Ok(prepared) => prepared,
        Err(reason) => return json!({ "error": reason }),
    };
    let since = Instant::now();
    let has_link = || sysfs::number(format!("/sys/class/net/{name}/carrier")) == Some(1);
    while !has_link() && since.elapsed() < LINK_WAIT {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut about = proof::nic(&name);
    about["error"] = problem(&wanted, &name, has_link()).into();
    // A bridge that the host made for one session has a random name, which would look like a
    // difference between machines.
    if name.starts_with("tare-") {
        about["name"] = Value::Null;
    }
    about
}

/// What is wrong with the interface; `None` where it is as wanted.
fn problem(wanted: &Wanted, name: &str, link: bool) -> Option<String> {
    if !link {
        let waited = LINK_WAIT.as_secs();
        return Some(format!("{name} has no link after {waited} s"));
    }
    match sys::address(name) {
        Ok(address) if address == wanted.address => {}
        Ok(address) => {
            return Some(format!(
                "{name} has the address {address}, not {}",
                wanted.address
            ))
        }
        Err(error) => return Some(format!("{name} has no address: {error}")),
    }
    let mtu = sysfs::number(format!("/sys/class/net/{name}/mtu"));
    match wanted.mtu {
        Some(wanted) if mtu != Some(wanted.into()) => Some(format!(
            "{name} has an MTU of {}, not {wanted}",
            mtu.unwrap_or_default()
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_parameter_has_address_prefix_and_mtu() {
        let wanted: Wanted = "10.1.2.3/24,mtu=1400".parse().unwrap();
        assert_eq!(wanted.address, Ipv4Addr::new(10, 1, 2, 3));
        assert_eq!((wanted.prefix, wanted.mtu), (24, Some(1400)));
        for bad in [
            "",
            "10.1.2.3",
            "10.1.2/24",
            "10.1.2.3/33",
            "10.1.2.3/24,mtu=x",
            "10.1.2.3/24,y=1",
        ] {
            assert!(bad.parse::<Wanted>().unwrap_err().contains(bad));
        }
    }

    #[test]
    fn an_existing_interface_is_checked() {
        let about = check_existing("127.0.0.1/8");
        assert_eq!(about["name"], "lo", "{about}");
        assert!(about["error"].is_null(), "{about}");
        let about = check_existing("127.0.0.1/8,mtu=1234");
        assert!(
            about["error"].as_str().unwrap().contains("not 1234"),
            "{about}"
        );
        let about = check_existing("192.0.2.77/24");
        assert!(
            about["error"].as_str().unwrap().contains("192.0.2.77"),
            "{about}"
        );
    }

    #[test]
    fn the_interface_of_an_address_is_described() {
        let about = describe_address(Ipv4Addr::LOCALHOST.into());
        assert_eq!(about["name"], "lo", "{about}");
        assert_eq!(about["address"], "127.0.0.1", "{about}");
        assert!(
            about["error"].is_null() && about["mtu"].is_number(),
            "{about}"
        );
        for other in ["192.0.2.77", "::1"] {
            let about = describe_address(other.parse().unwrap());
            assert_eq!(about["address"], other);
            assert!(about["error"].as_str().unwrap().contains(other), "{about}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_fail(text in ".{0,40}") {
            let _ = text.parse::<Wanted>();
        }
    }
}
