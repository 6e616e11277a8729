//! HTTP/2 on one connection, one request at a time (RFC 9113), by the library `h2`.
//!
//! The library reads and writes memory and is polled after each change, so that one loop serves all
//! connections, as with HTTP/1: nothing here ever waits, so no waker is needed.

use super::response::Response;
use super::tally::RequestError;
use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Error, RecvStream};
use http::Request;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The flow-control window: larger than a study's objects, so that the proxy is measured, and not this
/// end's window updates.
const WINDOW: u32 = 4 << 20;

/// Received bytes that were not read yet, and bytes to send.
#[derive(Default)]
struct Wire {
    arrived: Vec<u8>,
    read: usize,
    ended: bool,
    leaving: Vec<u8>,
}

/// The wire as the library knows it.
struct Pipe(Rc<RefCell<Wire>>);

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = &mut *self.0.borrow_mut();
        let left = &wire.arrived[wire.read..];
        if left.is_empty() {
            return match wire.ended {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            };
        }
        let count = left.len().min(into.remaining());
        into.put_slice(&left[..count]);
        wire.read += count;
        if wire.read == wire.arrived.len() {
            wire.arrived.clear();
            wire.read = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().leaving.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// One connection.
pub struct Http2 {
    wire: Rc<RefCell<Wire>>,
    connection: Connection<Pipe, Bytes>,
    requests: SendRequest<Bytes>,
    head: Option<ResponseFuture>,
    body: Option<RecvStream>,
    over: bool,
}

impl Http2 {
    pub fn new() -> Result<Self, RequestError> {
        let wire = Rc::new(RefCell::new(Wire::default()));
        let begun = Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .enable_push(false)
            .handshake(Pipe(wire.clone()));
        match Box::pin(begun).as_mut().poll(&mut no_waker()) {
            Poll::Ready(Ok((requests, connection))) => Ok(Self {
                wire,
                connection,
                requests,
                head: None,
                body: None,
                over: false,
            }),
            Poll::Ready(Err(error)) => Err(error_of(&error)),
            // The client's preface waits for nothing.
            Poll::Pending => Err(RequestError::Other),
        }
    }

    /// Ask; what is to be sent for it is taken by [`Two::leaving`].
    pub fn request(
        &mut self,
        request: &Request<()>,
        response: &mut Response,
    ) -> Result<(), RequestError> {
        match self.requests.poll_ready(&mut no_waker()) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Err(error_of(&error)),
            Poll::Pending => return Err(RequestError::Other),
        }
        let sent = self.requests.send_request(request.clone(), true);
        self.head = Some(sent.map_err(|error| error_of(&error))?.0);
        self.make_progress(response)
    }

    /// Take what came.
    pub fn arrived(&mut self, bytes: &[u8], response: &mut Response) -> Result<(), RequestError> {
        self.wire.borrow_mut().arrived.extend_from_slice(bytes);
        self.make_progress(response)
    }

    /// Take that no more will come.
    pub fn ended(&mut self, response: &mut Response) -> Result<(), RequestError> {
        self.wire.borrow_mut().ended = true;
        self.make_progress(response)
    }

    /// Take the bytes to send.
    pub fn leaving(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.wire.borrow_mut().leaving)
    }

    /// Let the library work until nothing changes any more.
    fn make_progress(&mut self, response: &mut Response) -> Result<(), RequestError> {
        loop {
            self.drive_connection(response)?;
            if !self.read_head(response)? && !self.read_body(response)? {
                return Ok(());
            }
        }
    }

    fn drive_connection(&mut self, response: &mut Response) -> Result<(), RequestError> {
        if self.over {
            return Ok(());
        }
        match Pin::new(&mut self.connection).poll(&mut no_waker()) {
            Poll::Pending => Ok(()),
            Poll::Ready(result) => {
                self.over = true;
                response.closes = true;
                match result {
                    // The request's own error is more precise.
                    Err(error) if self.head.is_none() && self.body.is_none() => {
                        Err(error_of(&error))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    fn read_head(&mut self, response: &mut Response) -> Result<bool, RequestError> {
        let Some(head) = &mut self.head else {
            return Ok(false);
        };
        match Pin::new(head).poll(&mut no_waker()) {
            Poll::Pending => Ok(false),
            Poll::Ready(result) => {
                self.head = None;
                let (parts, body) = result.map_err(|error| error_of(&error))?.into_parts();
                response.begin(parts.status.as_u16());
                self.body = Some(body);
                Ok(true)
            }
        }
    }

    fn read_body(&mut self, response: &mut Response) -> Result<bool, RequestError> {
        let Some(body) = &mut self.body else {
            return Ok(false);
        };
        match body.poll_data(&mut no_waker()) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Some(piece)) => {
                let piece = piece.map_err(|error| error_of(&error))?;
                response.add(piece.len() as u64);
                body.flow_control()
                    .release_capacity(piece.len())
                    .map_err(|error| error_of(&error))?;
            }
            Poll::Ready(None) => {
                response.finish();
                self.body = None;
            }
        }
        Ok(true)
    }
}

/// No task has to be woken: everything is polled again as soon as bytes have arrived.
fn no_waker() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn error_of(error: &Error) -> RequestError {
    if error.is_io() {
        RequestError::CutShort
    } else if error.is_remote() {
        RequestError::Reset
    } else {
        RequestError::Malformed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requested() -> (Http2, Response) {
        let (mut client, mut response) = (Http2::new().unwrap(), Response::default());
        let request = Request::get("http://tare/file").body(()).unwrap();
        client.request(&request, &mut response).unwrap();
        (client, response)
    }

    /// A frame (RFC 9113, 4.1).
    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    /// Settings, a head with status 200 (RFC 7541, index 8), and a body in two pieces.
    fn answer() -> Vec<u8> {
        let mut bytes = frame(4, 0, 0, &[]);
        bytes.extend(frame(1, 4, 1, &[0x88]));
        bytes.extend(frame(0, 0, 1, b"hel"));
        bytes.extend(frame(0, 1, 1, b"lo"));
        bytes
    }

    #[test]
    fn a_request_follows_the_protocols_preface() {
        let (mut client, _) = requested();
        let sent = client.leaving();
        assert!(sent.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
        assert!(client.leaving().is_empty());
    }

    #[test]
    fn a_connection_carries_one_request_after_another() {
        let (mut client, mut response) = requested();
        client.arrived(&answer(), &mut response).unwrap();
        assert!(response.is_done() && !response.closes);
        assert_eq!((response.status, response.body), (200, 5));
        response.clear();
        let request = Request::get("http://tare/file").body(()).unwrap();
        client.request(&request, &mut response).unwrap();
        let mut again = frame(1, 4, 3, &[0x88]);
        again.extend(frame(0, 1, 3, b"x"));
        client.arrived(&again, &mut response).unwrap();
        assert_eq!((response.is_done(), response.body), (true, 1));
    }

    #[test]
    fn a_reset_stream_differs_from_a_closed_connection() {
        let (mut client, mut response) = requested();
        client.arrived(&frame(4, 0, 0, &[]), &mut response).unwrap();
        let reset = frame(3, 0, 1, &2u32.to_be_bytes());
        assert_eq!(
            client.arrived(&reset, &mut response),
            Err(RequestError::Reset)
        );
        let (mut client, mut response) = requested();
        let whole = answer();
        client
            .arrived(&whole[..whole.len() - 4], &mut response)
            .unwrap();
        assert_eq!(client.ended(&mut response), Err(RequestError::CutShort));
        assert!(!response.is_done());
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_make_the_same_answer(sizes in prop::collection::vec(1usize..20, 1..30)) {
            let (mut client, mut response) = requested();
            let whole = answer();
            let mut rest = &whole[..];
            for size in sizes.iter().cycle() {
                let (piece, after) = rest.split_at((*size).min(rest.len()));
                client.arrived(piece, &mut response).unwrap();
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!((response.status, response.body, response.is_done()), (200, 5, true));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 0usize..60) {
            let (mut client, mut response) = requested();
            let whole = answer();
            if client.arrived(&whole[..cut.min(whole.len())], &mut response).is_ok() {
                let _ = client.arrived(&bytes, &mut response);
                let _ = client.ended(&mut response);
            }
        }
    }
}
