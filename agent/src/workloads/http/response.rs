//! One response of HTTP/1.1, taken in pieces of any size (RFC 9112).

/// A longer head is malformed.
const MOST_HEAD: usize = 64 << 10;

/// What is wrong with a response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Malformed;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Head,
    /// The number of bytes of the body that are still to come.
    Counted(u64),
    Chunked(Chunk),
    /// The body ends with the connection.
    UntilEnd,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Chunk {
    /// In the line with the chunk's size: the size so far, and its number of digits.
    Size(u64, u32),
    /// After the size, up to the line's end.
    Rest(u64),
    Data(u64),
    /// The line end behind a chunk.
    DataEnd,
    /// In the lines behind the last chunk: whether this one is empty so far.
    Trailer(bool),
}

/// A response that comes in.
#[derive(Debug)]
pub struct Response {
    state: State,
    head: Vec<u8>,
    pub status: u16,
    /// Bytes of the body so far.
    pub body: u64,
    /// Whether the server will close the connection.
    pub closes: bool,
    begun: bool,
}

impl Default for Response {
    fn default() -> Self {
        Self {
            state: State::Head,
            head: Vec::new(),
            status: 0,
            body: 0,
            closes: false,
            begun: false,
        }
    }
}

impl Response {
    /// Reset, for the next response.
    pub fn clear(&mut self) {
        self.head.clear();
        self.state = State::Head;
        (self.status, self.body, self.closes, self.begun) = (0, 0, false, false);
    }

    /// Start a response whose framing another layer has parsed (HTTP/2).
    pub fn begin(&mut self, status: u16) {
        self.status = status;
        self.begun = true;
    }

    /// Add bytes of the body, from that layer.
    pub fn add(&mut self, bytes: u64) {
        self.body += bytes;
    }

    /// The response is complete, according to that layer.
    pub fn finish(&mut self) {
        self.state = State::Done;
    }

    pub fn has_begun(&self) -> bool {
        self.begun
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Take what came. More than one response is malformed: only one request was sent.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), Malformed> {
        self.begun |= !bytes.is_empty();
        while !bytes.is_empty() {
            match self.state {
                State::Head => bytes = self.take_head(bytes)?,
                State::Counted(left) => {
                    let taken = left.min(bytes.len() as u64);
                    self.body += taken;
                    self.state = match left - taken {
                        0 => State::Done,
                        left => State::Counted(left),
                    };
                    bytes = &bytes[taken as usize..];
                }
                State::UntilEnd => {
                    self.body += bytes.len() as u64;
                    bytes = &[];
                }
                State::Chunked(chunk) => bytes = self.take_chunked(chunk, bytes)?,
                State::Done => return Err(Malformed),
            }
        }
        Ok(())
    }

    /// The server sends no more. Whether the response is whole.
    pub fn end(&mut self) -> bool {
        if self.state == State::UntilEnd {
            self.state = State::Done;
        }
        self.state == State::Done
    }

    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
        // The end may span pieces, so a little of the last one is checked again.
        let before = self.head.len();
        if before == 0 {
            if let Some(end) = head_end(bytes) {
                self.read_head(&bytes[..end])?;
                return Ok(&bytes[end..]);
            }
        }
        let seen = before.saturating_sub(3);
        self.head.extend_from_slice(bytes);
        match head_end(&self.head[seen..]) {
            Some(end) => {
                let head = std::mem::take(&mut self.head);
                let end = seen + end;
                self.read_head(&head[..end])?;
                Ok(&bytes[end - before..])
            }
            None if self.head.len() > MOST_HEAD => Err(Malformed),
            None => Ok(&[]),
        }
    }

    fn read_head(&mut self, head: &[u8]) -> Result<(), Malformed> {
        let mut lines = head.split(|byte| *byte == b'\n').map(without_return);
        let (version, status) = status_line(lines.next().unwrap_or_default()).ok_or(Malformed)?;
        if (100..200).contains(&status) && status != 101 {
            // An interim response: the real one follows.
            return Ok(());
        }
        self.status = status;
        self.closes = version == 0;
        let (mut length, mut chunked) = (None, false);
        for line in lines.filter(|line| !line.is_empty()) {
            let colon = line
                .iter()
                .position(|byte| *byte == b':')
                .ok_or(Malformed)?;
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"content-length") {
                let stated = number(value).ok_or(Malformed)?;
                if length.is_some_and(|known| known != stated) {
                    return Err(Malformed);
                }
                length = Some(stated);
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                chunked = value.eq_ignore_ascii_case(b"chunked");
                if !chunked {
                    return Err(Malformed);
                }
            } else if name.eq_ignore_ascii_case(b"connection") {
                if value.eq_ignore_ascii_case(b"close") {
                    self.closes = true;
                } else if value.eq_ignore_ascii_case(b"keep-alive") {
                    self.closes = false;
                }
            }
        }
        self.state = match length {
            _ if matches!(status, 204 | 304) => State::Done,
            _ if chunked => State::Chunked(Chunk::Size(0, 0)),
            Some(0) => State::Done,
            Some(length) => State::Counted(length),
            None => State::UntilEnd,
        };
        Ok(())
    }

    fn take_chunked<'a>(&mut self, chunk: Chunk, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
        if let Chunk::Data(left) = chunk {
            let taken = left.min(bytes.len() as u64);
            self.body += taken;
            self.state = State::Chunked(match left - taken {
                0 => Chunk::DataEnd,
                left => Chunk::Data(left),
            });
            return Ok(&bytes[taken as usize..]);
        }
        let byte = bytes[0];
        let next = match (chunk, byte) {
            (Chunk::Size(_, 0), b'\n') => return Err(Malformed),
            (Chunk::Size(0, _) | Chunk::Rest(0), b'\n') => Chunk::Trailer(true),
            (Chunk::Size(size, _) | Chunk::Rest(size), b'\n') => Chunk::Data(size),
            (Chunk::Size(size, digits), byte) => match (byte as char).to_digit(16) {
                Some(_) if digits >= 15 => return Err(Malformed),
                Some(digit) => Chunk::Size(size << 4 | u64::from(digit), digits + 1),
                None if digits == 0 => return Err(Malformed),
                None => Chunk::Rest(size),
            },
            (Chunk::Rest(size), _) => Chunk::Rest(size),
            (Chunk::DataEnd, b'\r') => Chunk::DataEnd,
            (Chunk::DataEnd, b'\n') => Chunk::Size(0, 0),
            (Chunk::DataEnd, _) => return Err(Malformed),
            (Chunk::Trailer(true), b'\n') => {
                self.state = State::Done;
                return Ok(&bytes[1..]);
            }
            (Chunk::Trailer(empty), b'\r') => Chunk::Trailer(empty),
            (Chunk::Trailer(_), byte) => Chunk::Trailer(byte == b'\n'),
            (Chunk::Data(_), _) => return Err(Malformed),
        };
        self.state = State::Chunked(next);
        Ok(&bytes[1..])
    }
}

/// Where the empty line ends that ends a head.
fn head_end(bytes: &[u8]) -> Option<usize> {
    let found = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    found.map(|at| at + 4)
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The minor version and the status of `HTTP/1.1 200 OK`.
fn status_line(line: &[u8]) -> Option<(u8, u16)> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let (minor, rest) = rest.split_first()?;
    let status = rest.strip_prefix(b" ")?.get(..3)?;
    if !minor.is_ascii_digit() || rest.get(4).is_some_and(|byte| *byte != b' ') {
        return None;
    }
    let status = number(status).filter(|status| (100..1000).contains(status))?;
    Some((minor - b'0', status as u16))
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter();
    Some(value.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHOLE: &[&[u8]] = &[
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nA: b\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\ncontent-length:5\r\n\r\nhello",
    ];

    fn in_pieces(bytes: &[u8], sizes: &[usize]) -> Result<Response, Malformed> {
        let (mut response, mut rest) = (Response::default(), bytes);
        let mut sizes = sizes.iter().cycle();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((*sizes.next().unwrap()).clamp(1, rest.len()));
            response.take(piece)?;
            rest = after;
        }
        Ok(response)
    }

    #[test]
    fn heads_are_parsed() {
        let response = in_pieces(WHOLE[0], &[1000]).unwrap();
        assert!(response.is_done() && response.closes);
        assert_eq!((response.status, response.body), (200, 5));
        let mut response = Response::default();
        response.take(b"HTTP/1.0 404 Not Found\r\n\r\n").unwrap();
        assert!(response.closes && !response.is_done() && response.status == 404);
        response.take(b"gone").unwrap();
        assert!(response.end() && response.body == 4);
    }

    #[test]
    fn a_truncated_response_is_incomplete() {
        for whole in WHOLE {
            let mut response = in_pieces(&whole[..whole.len() - 1], &[7]).unwrap();
            assert!(!response.is_done() && !response.end());
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n", "y".repeat(MOST_HEAD));
        for bytes in [
            &b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..],
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab",
            long.as_bytes(),
        ] {
            assert!(in_pieces(bytes, &[16]).is_err(), "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn the_pieces_do_not_matter(which in 0..3usize, sizes in prop::collection::vec(1usize..20, 1..8)) {
            let response = in_pieces(WHOLE[which], &sizes).unwrap();
            prop_assert!(response.is_done());
            prop_assert_eq!((response.status, response.body), (200, 5));
        }

        #[test]
        fn no_bytes_make_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..300), size in 1usize..50) {
            let _ = in_pieces(&bytes, &[size]);
            let headed = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &bytes[..]].concat();
            let _ = in_pieces(&headed, &[size]);
        }
    }
}
