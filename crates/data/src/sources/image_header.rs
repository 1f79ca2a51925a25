//! How large a picture becomes, read off the first bytes of its file, so that nothing has to be decoded to plan for it.

use super::files::Readable;

/// The size of a picture, and the bytes that a decoder makes of a pixel at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) pixel_bytes: u32,
}

/// The header of a PNG or JPEG file; `None` when it is neither, or broken.
pub(super) fn read(file: &Readable) -> Option<Header> {
    let mut start = [0; 33];
    let n = file.read_some(0, &mut start).ok()?;
    if start[..n].starts_with(b"\x89PNG\r\n\x1a\n") {
        return png(start.get(16..26).filter(|_| n >= 26)?);
    }
    if start[..n].starts_with(&[0xff, 0xd8]) { jpeg(file) } else { None }
}

fn png(header: &[u8]) -> Option<Header> {
    let size = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
    // Grey, colour, and colours of a palette may have one that is transparent.
    let channels = match header[9] {
        0 | 4 => 2,
        _ => 4,
    };
    let pixel_bytes = channels * if header[8] == 16 { 2 } else { 1 };
    Some(Header { width: size(0)?, height: size(4)?, pixel_bytes })
}

/// Passes from mark to mark until the one that begins a frame.
fn jpeg(file: &Readable) -> Option<Header> {
    let mut at = 2;
    loop {
        let mut mark = [0; 10];
        let n = file.read_some(at, &mut mark).ok()?;
        let (kind, there) = (mark[1], &mark[..n]);
        if there.len() < 4 || mark[0] != 0xff {
            return None;
        }
        match kind {
            // Padding, and marks that stand alone.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            // Of the marks of frames three are something else.
            0xc0..=0xcf if !matches!(kind, 0xc4 | 0xc8 | 0xcc) => {
                let [_, _, _, _, _, h0, h1, w0, w1, channels] = *there.first_chunk::<10>()?;
                let (height, width) = (u16::from_be_bytes([h0, h1]), u16::from_be_bytes([w0, w1]));
                let pixel_bytes = if channels == 1 { 1 } else { u32::from(channels.max(3)) };
                return Some(Header { width: width.into(), height: height.into(), pixel_bytes });
            }
            0xd9 | 0xda => return None,
            _ => at += 2 + u64::from(u16::from_be_bytes([mark[2], mark[3]])),
        }
    }
}
