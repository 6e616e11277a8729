//! `tare-agent tap`: one end of a tunnel. It forwards frames from a tap to standard output, and from
//! standard input to the tap.
//!
//! Each frame has its length before it, two bytes, the low one first.

use crate::sys;
use std::io::{self, ErrorKind, Read, Write};
use std::thread;

const LENGTH: usize = 2;
const MOST: usize = u16::MAX as usize;

/// Carry frames until standard input ends, or the tap is gone.
pub fn forward(arguments: &[String]) -> Result<(), String> {
    let [name] = arguments else {
        return Err("tap takes the name of a tap that is there".into());
    };
    let failed = |error: io::Error| format!("{name}: {error}");
    let tap = sys::open_tap(name).map_err(failed)?;
    let leaving = tap.try_clone().map_err(failed)?;
    let label = name.clone();
    thread::spawn(move || {
        let ended = send(leaving, io::stdout());
        eprintln!("tare-agent: {label}: {ended}");
        // The other direction would wait for frames whose answers cannot be sent.
        std::process::exit(1);
    });
    receive(io::stdin().lock(), tap).map_err(failed)
}

/// Write each frame that `tap` gives, until one of both fails.
fn send(mut tap: impl Read, mut out: impl Write) -> io::Error {
    let mut frame = vec![0; LENGTH + MOST];
    loop {
        let sent = tap.read(&mut frame[LENGTH..]).and_then(|length| {
            frame[..LENGTH].copy_from_slice(&(length as u16).to_le_bytes());
            out.write_all(&frame[..LENGTH + length])?;
            out.flush()
        });
        match sent {
            Err(error) if error.kind() != ErrorKind::Interrupted => return error,
            _ => {}
        }
    }
}

/// Give `tap` each frame that comes, until no more do.
fn receive(from: impl Read, mut tap: impl Write) -> io::Result<()> {
    let mut from = io::BufReader::with_capacity(1 << 16, from);
    let mut frame = vec![0; MOST];
    loop {
        let mut length = [0; LENGTH];
        match from.read_exact(&mut length) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let frame = &mut frame[..u16::from_le_bytes(length).into()];
        from.read_exact(frame)?;
        match tap.write(frame) {
            // A tap takes no frame that is too short or too long: such a one is lost, as on a wire.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {}
            written => drop(written?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// A tap as the kernel's: a frame a call.
    #[derive(Default)]
    struct Frames(VecDeque<Vec<u8>>);

    impl Read for Frames {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let frame = self.0.pop_front().ok_or(ErrorKind::BrokenPipe)?;
            buffer[..frame.len()].copy_from_slice(&frame);
            Ok(frame.len())
        }
    }

    impl Write for &mut Frames {
        fn write(&mut self, frame: &[u8]) -> io::Result<usize> {
            if frame.len() < 14 {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            self.0.push_back(frame.to_vec());
            Ok(frame.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..2000), 0..9)
        ) {
            let mut wire = Vec::new();
            send(Frames(frames.clone().into()), &mut wire);
            let mut arrived = Frames::default();
            receive(wire.as_slice(), &mut arrived).unwrap();
            let whole: Vec<_> = frames.into_iter().filter(|frame| frame.len() >= 14).collect();
            prop_assert_eq!(Vec::from(arrived.0), whole);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = receive(bytes.as_slice(), &mut Frames::default());
        }
    }

    #[test]
    fn an_end_within_a_frame_is_an_error() {
        assert!(receive([9, 0, 1].as_slice(), &mut Frames::default()).is_err());
    }
}
