// SPDX-License-Identifier: Apache-2.0
//! Unpacking: zstd frames one behind the other, skippable frames among them.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::BlockDecodingStrategy;
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

use super::error::TraceProblem;

/// How a packed trace begins.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
/// Bytes decoded at a time.
const STEP: usize = 128 << 10;

/// A damaged packing, inside an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Damage(String);

/// Tells a damaged packing from a failed read.
pub(super) fn problem(error: &io::Error) -> TraceProblem {
    match error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Damage>())
    {
        Some(Damage(reason)) => TraceProblem::Packing {
            reason: reason.clone(),
        },
        None => TraceProblem::Io {
            reason: error.to_string(),
        },
    }
}

fn damage(reason: impl ToString) -> io::Error {
    let reason = reason.to_string().replace('\n', " ");
    io::Error::other(Damage(reason))
}

/// Whether `start` begins a frame, a skippable one too.
pub(super) fn is_packed(start: &[u8]) -> bool {
    start.starts_with(&MAGIC)
        || (start.len() >= 4 && start[1..4] == [0x2A, 0x4D, 0x18] && start[0] & 0xF0 == 0x50)
}

/// The unpacked bytes of `input`.
pub(super) struct Unpacked<R> {
    input: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Unpacked<R> {
    /// Unpacks `input`, which begins with a frame.
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            decoder: FrameDecoder::new(),
            in_frame: false,
        }
    }

    /// Begins the next frame; false at the end of the input.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => self.skip(u64::from(length))?,
                Err(error) => return Err(damage(error)),
            }
        }
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.input).take(length), &mut io::sink())?;
        if skipped < length {
            return Err(damage("a skippable frame ends too early"));
        }
        Ok(())
    }

    /// Checks a frame that was decoded wholly.
    fn end_frame(&self) -> io::Result<()> {
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(damage("the checksum does not fit"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_frame {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.in_frame = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBytes(STEP))
                    .map_err(damage)?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            self.end_frame()?;
            self.in_frame = false;
        }
    }
}
