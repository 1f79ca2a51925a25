//! Folders of images: one folder per class.

use super::files::{Files, Readable};
use super::image_header;
use crate::guard::{brief, caught};
use crate::stages::{Sizes, Writer};
use crate::{Component, Dataset, Error, Kind};
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, imageops::FilterType};
use plimsoll_budget::{Account, Reservation};
use plimsoll_tensor::{DType, Tensor};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// How the images of a folder become elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Images {
    /// Height and width to which every image is resized (bilinear); `None` leaves them as they are, each with its own size.
    pub size: Option<(u32, u32)>,
    /// 1 for grey, 3 for colour.
    pub channels: u32,
    /// The most pixels that an image may have: a few bytes can claim billions.
    pub most_pixels: u64,
}

impl Default for Images {
    fn default() -> Images {
        Images { size: None, channels: 3, most_pixels: 64 << 20 }
    }
}

impl Images {
    /// Resized to this height and width.
    pub fn resized(height: u32, width: u32) -> Images {
        Images { size: Some((height, width)), ..Images::default() }
    }

    fn component(&self) -> Component {
        let side = |n: Option<u32>| n.map(|n| n as usize);
        let dims = [side(self.size.map(|s| s.0)), side(self.size.map(|s| s.1)), Some(self.channels as usize)];
        Component::ragged("image", DType::U8, &dims)
    }
}

impl Dataset {
    /// The JPEG and PNG images in the folders of a folder: `image` (height, width, channels; bytes), `label` (the number of the folder, in the
    /// order of names) and `path`.
    ///
    /// Images are found by number, so a shuffle is complete; put `.prefetch(AUTOTUNE)` behind it to decode and resize on several
    /// threads. [`Dataset::image_classes`] gives the folders' names.
    pub fn from_image_folder(folder: impl AsRef<Path>, images: Images) -> Dataset {
        let folder = folder.as_ref().to_path_buf();
        Dataset::from_result((|| {
            let classes = Dataset::image_classes(&folder)?;
            let (mut paths, mut labels) = (Vec::new(), Vec::new());
            for (label, class) in classes.iter().enumerate() {
                let mut files = images_in(&folder.join(class))?;
                files.sort();
                labels.extend(std::iter::repeat_n(label as i64, files.len()));
                paths.extend(files);
            }
            if paths.is_empty() {
                return Err(Error::in_file(&folder, "has no folders with .jpg, .jpeg or .png files"));
            }
            let labels = Tensor::from_slice([labels.len()], &labels).expect("as many as counted");
            let files = Dataset::from_strings("path", paths.iter().map(|p| p.as_os_str().as_encoded_bytes()));
            let rows = Dataset::zip_named(&[("", &files), ("", &Dataset::from_array("label", labels))]);
            let rows = rows.rename(&[("/path", "path"), ("/label", "label")]);
            let components = [
                images.component(),
                Component::new("label", DType::I64, &[]),
                Component::new("path", Kind::Bytes, &[]),
            ];
            let sizes = sizes(paths, images);
            Ok(rows.map_of_sizes(components, sizes, move |row, out| {
                let path = as_path(row.string("path")?);
                let (bytes, _held) = read(&path, out)?;
                decode(&path, &bytes, &images, out)?;
                out.copy("label", row, "label")?;
                out.copy("path", row, "path")
            }))
        })())
    }

    /// The names of the folders in a folder, in order: the classes of [`Dataset::from_image_folder`].
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn image_classes(folder: impl AsRef<Path>) -> Result<Vec<String>, Error> {
        let folder = folder.as_ref();
        let mut classes = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|e| Error::io(folder, e))? {
            let entry = entry.map_err(|e| Error::io(folder, e))?;
            if entry.path().is_dir() {
                classes.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        classes.sort();
        Ok(classes)
    }

    /// JPEG and PNG images without labels: `image` and `path`.
    pub fn from_images(files: impl Into<Files>, images: Images) -> Dataset {
        let files = files.into();
        let paths = files
            .expect_some("images")
            .map(|paths| Dataset::from_strings("path", paths.iter().map(|path| path.as_os_str().as_encoded_bytes())));
        let components = [images.component(), Component::new("path", Kind::Bytes, &[])];
        Dataset::from_result(paths).map_of_sizes(components, sizes(files.paths().to_vec(), images), move |row, out| {
            let path = as_path(row.string("path")?);
            let (bytes, _held) = read(&path, out)?;
            decode(&path, &bytes, &images, out)?;
            out.copy("path", row, "path")
        })
    }
}

/// The bytes of a file, counted.
fn read(path: &Path, out: &Writer<'_, '_>) -> Result<(Vec<u8>, Reservation), Error> {
    let file = Readable::open(path)?;
    // A decoder may have a copy of its own.
    let held = out.reserve(file.len.saturating_mul(2))?;
    let mut bytes = vec![0; file.len as usize];
    file.read(0, &mut bytes)?;
    Ok((bytes, held))
}

fn as_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

fn images_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| Error::io(folder, e))? {
        let path = entry.map_err(|e| Error::io(folder, e))?.path();
        let ending = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
        if matches!(ending.as_deref(), Some("jpg" | "jpeg" | "png")) {
            found.push(path);
        }
    }
    Ok(found)
}

/// How many files are looked at for the sizes of pictures, evenly spread, where there are more; then there is room for pictures
/// twice as large.
const LOOK_AT: usize = 4096;

/// How large the elements are that these files become, as far as their headers tell.
fn sizes(paths: Vec<PathBuf>, images: Images) -> Sizes {
    let found = Arc::new(OnceLock::new());
    let look = move || {
        let step = paths.len().div_ceil(LOOK_AT).max(1);
        let times = if step == 1 { 1 } else { 2 };
        let (mut largest, mut scratch) = (0u64, 0u64);
        for path in paths.iter().step_by(step) {
            // What cannot be read is an element that is an error.
            let Ok(file) = Readable::open(path) else { continue };
            let header = image_header::read(&file);
            let pixels = header.map_or(0, |h| u64::from(h.width) * u64::from(h.height));
            let header = header.filter(|_| pixels <= images.most_pixels);
            scratch = scratch.max(file.len.saturating_mul(2).saturating_add(opening_bytes(file.len)).saturating_add(
                header.map_or(0, |h| decoding_bytes(h.width, h.height, pixels * u64::from(h.pixel_bytes), &images)),
            ));
            if header.is_some() {
                largest = largest.max(pixels * u64::from(images.channels));
            }
        }
        let pixels =
            images.size.map_or(largest * times, |(h, w)| u64::from(h) * u64::from(w) * u64::from(images.channels));
        (pixels.next_multiple_of(8), scratch * times)
    };
    let look = Arc::new(move || *found.get_or_init(&look));
    let again = look.clone();
    // Path and label come along as they are.
    let largest = move |input: u64| look().0.checked_add(input);
    Sizes { largest: Box::new(largest), scratch: Box::new(move |_| Some(again().1)), total: Box::new(|| None) }
}

/// What a decoder may take before the size of the picture is known, besides a few times the file.
const OPENING: u64 = 256 << 10;

fn opening_bytes(file: u64) -> u64 {
    file.saturating_mul(4).saturating_add(OPENING)
}

/// What decoding takes: the decoded picture, its conversion and what a decoder keeps beside it (coefficients of 2 bytes, where it
/// comes in several passes); and resizing it.
fn decoding_bytes(width: u32, height: u32, decoded: u64, images: &Images) -> u64 {
    let pixels = u64::from(width) * u64::from(height);
    let channels = if images.channels == 0 { 4 } else { images.channels };
    let decoding = decoded.saturating_add(pixels * (u64::from(channels) + 6));
    let resized = images.size.filter(|(h, w)| (*w, *h) != (width, height));
    decoding.saturating_add(resized.map_or(0, |(h, w)| resizing_bytes(width, h, w, channels)))
}

/// What resizing a picture takes: between its two passes it has its old width, its new height and floats.
fn resizing_bytes(width: u32, new_height: u32, new_width: u32, channels: u32) -> u64 {
    let between = (width as u64).saturating_mul(new_height as u64).saturating_mul(4 * size_of::<f32>() as u64);
    let result = (new_width as u64).saturating_mul(new_height as u64).saturating_mul(channels as u64);
    between.saturating_add(result)
}

/// Appends an encoded image as the component `image`.
fn decode(path: &Path, bytes: &[u8], images: &Images, out: &mut Writer<'_, '_>) -> Result<(), Error> {
    if !matches!(images.channels, 1 | 3) {
        let message = format!("{} channels were asked for; 1 or 3 can be had", images.channels);
        return Err(Error::pipeline("images", message));
    }
    let picture = images.picture(bytes, &|n| out.reserve(n), &|message| Error::in_file(path, message))?;
    out.set("image", &picture.sizes(), picture.bytes())
}

/// A picture that was decoded.
pub struct Picture {
    pixels: DynamicImage,
    _held: Reservation,
}

impl Picture {
    /// Height, width and channels.
    pub fn sizes(&self) -> [usize; 3] {
        let channels = self.pixels.color().channel_count() as usize;
        [self.pixels.height() as usize, self.pixels.width() as usize, channels]
    }

    /// The pixels from the top left one on, row by row, with their channels side by side.
    pub fn bytes(&self) -> &[u8] {
        self.pixels.as_bytes()
    }
}

impl Images {
    /// Decodes the bytes of a JPEG or PNG file; with 0 channels to as many as it has: 1, 3 or 4.
    ///
    /// # Errors
    /// When it cannot be decoded, or the account has no memory for that.
    pub fn decode(&self, bytes: &[u8], account: &Account) -> Result<Picture, Error> {
        self.picture(bytes, &|n| Ok(account.reserve(n.into())?), &|message| {
            Error::element(format!("the image {message}"))
        })
    }

    fn picture(
        &self,
        bytes: &[u8],
        reserve: &dyn Fn(u64) -> Result<Reservation, Error>,
        bad: &dyn Fn(String) -> Error,
    ) -> Result<Picture, Error> {
        let failed = |e: &dyn std::fmt::Display| bad(format!("is not an image that can be decoded: {}", brief(e)));
        let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|e| failed(&e))?;
        if !matches!(reader.format(), Some(ImageFormat::Jpeg | ImageFormat::Png)) {
            return Err(bad("is neither JPEG nor PNG".into()));
        }
        // Before its size is known a decoder may take this much: profiles and texts can be packed like anything else.
        let opening = opening_bytes(bytes.len() as u64);
        let opened = reserve(opening)?;
        let mut limits = image::Limits::default();
        limits.max_alloc = Some(opening);
        reader.limits(limits);
        let mut decoder = caught(|| reader.into_decoder())
            .ok_or_else(|| bad("is broken in a way that its decoder does not expect".into()))?
            .map_err(|e| failed(&e))?;
        let (width, height) = decoder.dimensions();
        let pixels = width as u64 * height as u64;
        if pixels == 0 || pixels > self.most_pixels {
            return Err(bad(format!("claims {width} x {height} pixels; at most {} are allowed", self.most_pixels)));
        }
        // What the picture claims is reserved before anything of its size is allocated.
        let decoding = decoding_bytes(width, height, decoder.total_bytes(), self);
        let resized = self.size.filter(|(h, w)| (*w, *h) != (width, height));
        let _held = reserve(decoding)?;
        let mut limits = image::Limits::default();
        limits.max_alloc = Some(decoding.saturating_add(opening));
        decoder.set_limits(limits).map_err(|e| failed(&e))?;
        let picture = caught(|| DynamicImage::from_decoder(decoder))
            .ok_or_else(|| bad("is broken in a way that its decoder does not expect".into()))?
            .map_err(|e| failed(&e))?;
        drop(opened);
        let color = picture.color();
        let pixels = match (self.channels, color.has_color(), color.has_alpha()) {
            (1, ..) | (0, false, false) => DynamicImage::ImageLuma8(picture.into_luma8()),
            (3, ..) | (0, true, false) => DynamicImage::ImageRgb8(picture.into_rgb8()),
            (4 | 0, ..) => DynamicImage::ImageRgba8(picture.into_rgba8()),
            (n, ..) => {
                return Err(Error::pipeline("images", format!("{n} channels were asked for; 1, 3 or 4 can be had")));
            }
        };
        let pixels = match resized {
            Some((h, w)) => pixels.resize_exact(w, h, FilterType::Triangle),
            None => pixels,
        };
        Ok(Picture { pixels, _held })
    }
}
