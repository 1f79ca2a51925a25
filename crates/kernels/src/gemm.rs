//! Matrix products: the `gemm` library's kernels on tiles of fixed size, shared among our own threads.
//!
//! The output is cut into tiles, each of which is one single-threaded library call; the inner axis is cut here, into
//! pieces that depend on its size alone. Inside a piece the library sums every element in one chain from the first term to the
//! last, whatever the tile, so that a row's result depends neither on the threads nor on how many rows there are (two
//! or more: one row alone takes a quicker way with other roundings). A sum over a long inner axis can be cut into fixed
//! chunks that are added from left to right, so that a batch summed in slices of whole chunks gives the same bits as one
//! summed at once.

use crate::pool::Pool;
use gemm_common::Parallelism;
use std::alloc::Layout;
use std::sync::OnceLock;

/// Rows of one block.
const TILE_ROWS: usize = 256;

/// The longest piece of the inner axis. It is the library's own choice with AVX-512; products of 1024 x 2048 x 1024 are as
/// fast as with its cutting. A shorter piece would write the output more often.
const DEPTH: usize = 512;

/// Terms of one chunk of a sum over a batch that gives `rows x columns` elements.
///
/// Measured on one core with AVX-512 for chunks of 256 and 64, in GFLOP/s: 150 and 144 for 1024 x 1024 elements, 145 and 138
/// for 768 x 768, 166 and 167 for 784 x 128, 179 and 171 for 256 x 64. What is small pays little for slices of a finer grain.
pub fn chunk_terms(rows: usize, columns: usize) -> usize {
    if rows * columns <= 1 << 17 { 64 } else { 256 }
}

/// The most blocks of a tile. Measured on products of 4096 x 2048 x 2048 on one core with AVX-512, in GFLOP/s for 1, 2 and 4
/// blocks: 139, 150, 155 for a plain product, 121, 136, 146 with the right operand transposed.
const TILE_BLOCKS: usize = 4;

/// Elements of a right operand below which its columns are not cut.
const SMALL_RIGHT: usize = 32 * 1024;

/// The widest tile in columns.
const TILE_COLUMNS: usize = 1024;

/// The narrowest tile in columns of a sum over a batch. Its left operand is read down its columns, once for every tile: for 1024 x 256 elements
/// and 2048, 768 and 256 terms on two cores with AVX-512, 218, 281 and 247 GFLOP/s instead of 186, 250 and 229 with 64 columns. Other products of
/// few columns are up to 7 % slower with wide tiles.
const SUM_COLUMNS: usize = 128;

/// The library's product: sizes, target, operands (each with column and row stride), factors of the target and of the
/// product, whether to conjugate each, threads.
type Library<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

/// An element type that matrix products exist for.
pub trait Scalar: Copy + Send + Sync + Default + PartialEq + 'static {
    /// 0.
    const NOTHING: Self;
    /// 1.
    const UNIT: Self;
    /// The library's product for this type.
    #[doc(hidden)]
    fn library() -> Library<Self>;
}

impl Scalar for f32 {
    const NOTHING: f32 = 0.0;
    const UNIT: f32 = 1.0;
    fn library() -> Library<f32> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }
}

impl Scalar for f64 {
    const NOTHING: f64 = 0.0;
    const UNIT: f64 = 1.0;
    fn library() -> Library<f64> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
}

/// A matrix inside a slice: element (i, j) stands at `i * row_stride + j * column_stride`.
#[derive(Clone, Copy)]
pub struct Mat<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> Mat<'a, T> {
    /// A row-major matrix that fills the beginning of `data`.
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Mat<'a, T> {
        Mat::strided(data, rows, columns, columns, 1)
    }

    /// A matrix with any strides.
    ///
    /// # Panics
    /// When an element lies outside `data`.
    pub fn strided(data: &'a [T], rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> Mat<'a, T> {
        check_inside(data.len(), rows, columns, row_stride, column_stride);
        Mat { data, rows, columns, row_stride, column_stride }
    }

    /// The same elements with rows and columns exchanged.
    #[must_use]
    pub fn t(self) -> Mat<'a, T> {
        Mat {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Transposed if `yes`.
    #[must_use]
    pub fn transposed_if(self, yes: bool) -> Mat<'a, T> {
        if yes { self.t() } else { self }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }
}

/// A matrix to be written: as [`Mat`], but exclusive.
pub struct MatMut<'a, T> {
    data: &'a mut [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> MatMut<'a, T> {
    /// A row-major matrix that fills the beginning of `data`.
    pub fn new(data: &'a mut [T], rows: usize, columns: usize) -> MatMut<'a, T> {
        MatMut::strided(data, rows, columns, columns, 1)
    }

    /// A matrix with any strides; no two elements may share a place.
    ///
    /// # Panics
    /// When an element lies outside `data`.
    pub fn strided(
        data: &'a mut [T],
        rows: usize,
        columns: usize,
        row_stride: usize,
        column_stride: usize,
    ) -> MatMut<'a, T> {
        check_inside(data.len(), rows, columns, row_stride, column_stride);
        MatMut { data, rows, columns, row_stride, column_stride }
    }
}

#[track_caller]
fn check_inside(len: usize, rows: usize, columns: usize, row_stride: usize, column_stride: usize) {
    if rows > 0 && columns > 0 {
        let last = (rows - 1) * row_stride + (columns - 1) * column_stride;
        assert!(last < len, "a {rows}x{columns} matrix reaches beyond its {len} elements");
    }
}

/// What happens to the old contents of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// They are overwritten.
    Overwrite,
    /// The product is added to them.
    Add,
}

/// `c = a b` (or `c += a b`), on all threads of the pool.
///
/// With `chunk` below the inner size, the sum over the inner axis is cut into chunks of that many terms,
/// added from left to right.
///
/// # Panics
/// When the sizes disagree.
pub fn matmul<T: Scalar>(pool: &Pool, a: Mat<'_, T>, b: Mat<'_, T>, c: MatMut<'_, T>, into: Into, chunk: usize) {
    let (m, k, n) = sizes(&a, &b, &c);
    let tile_n = tile_columns(k, n, chunk).min(widest::<T>());
    let tiles_n = n.div_ceil(tile_n).max(1);
    let rows = RowTiles::new(m, tiles_n, pool.threads(), tallest::<T>() / TILE_ROWS);
    let out = Target::new(c);
    // A multiply-add of f32 takes about 1/80 ns on one core.
    pool.run_sized(rows.count * tiles_n, m * k * n / 64, &|task, _| {
        let (rows, j) = (rows.get(task / tiles_n), task % tiles_n * tile_n);
        let columns = tile_n.min(n - j);
        // SAFETY: the tile lies inside `c`, whose bounds were checked, and tiles do not overlap.
        unsafe { tile(&a, &b, &out, rows, (j, columns), k, into, chunk) }
    });
}

/// As [`matmul`], in the calling thread: for products inside a task.
///
/// # Panics
/// When the sizes disagree.
pub fn matmul_here<T: Scalar>(a: Mat<'_, T>, b: Mat<'_, T>, c: MatMut<'_, T>, into: Into) {
    let (m, k, n) = sizes(&a, &b, &c);
    let out = Target::new(c);
    // Cut only so that what the library packs stays bounded.
    for i in (0..m).step_by(tallest::<T>()) {
        for j in (0..n).step_by(widest::<T>()) {
            let (rows, columns) = (tallest::<T>().min(m - i), widest::<T>().min(n - j));
            // SAFETY: the bounds of all three were checked when they were made.
            unsafe { tile(&a, &b, &out, (i, rows), (j, columns), k, into, usize::MAX) }
        }
    }
}

/// Rows of the tallest tile: as many bytes for every type.
fn tallest<T>() -> usize {
    TILE_BLOCKS * TILE_ROWS * size_of::<f32>() / size_of::<T>()
}

/// Columns of the widest tile: as many bytes for every type.
fn widest<T>() -> usize {
    TILE_COLUMNS * size_of::<f32>() / size_of::<T>()
}

/// What the library holds outside our memory for one thread, at most: it packs operands into heap buffers.
///
/// Bounds of several products are joined with [`Packing::max`]. They grow with every size, so that a bound for a whole batch
/// holds for its slices too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Bytes of the thread's slab, which stays once it was used.
    slab: usize,
    /// Bytes of the buffer of one call. It goes back to the allocator, which keeps it.
    buffer: usize,
}

/// Rows or columns of the library's widest register tile: sizes are rounded up to multiples.
const REGISTER_TILE: usize = 96;

/// Register tiles that the slab holds at most.
const SLAB_TILES: usize = 8;

impl Packing {
    /// No products.
    pub const NONE: Packing = Packing { slab: 0, buffer: 0 };

    /// For [`matmul`] with these sizes.
    pub fn matmul<T>(m: usize, k: usize, n: usize, chunk: usize) -> Packing {
        let depth = k.min(chunk).min(DEPTH);
        let columns = depth * rounded(tile_columns(k, n, chunk).min(widest::<T>()).min(n));
        // A slice with fewer terms may have wider tiles, but those are small ones.
        let small = SMALL_RIGHT.min(depth * n) + depth * REGISTER_TILE;
        Packing::of::<T>(m.min(tallest::<T>()), depth, columns.max(small))
    }

    /// For [`matmul_here`] with these sizes.
    pub fn here<T>(m: usize, k: usize, n: usize) -> Packing {
        let depth = k.min(DEPTH);
        Packing::of::<T>(m.min(tallest::<T>()), depth, depth * rounded(n.min(widest::<T>())))
    }

    /// For tiles of so many rows, terms and packed elements of the right operand.
    ///
    /// The library takes the output's longer stride for rows, so either operand may be its left one; that one is packed
    /// whole into the buffer or in parts of at most [`SLAB_TILES`] register tiles into the slab.
    fn of<T>(rows: usize, depth: usize, columns: usize) -> Packing {
        let rows = depth * rounded(rows);
        let slab = rows.max(columns).min(depth * SLAB_TILES * REGISTER_TILE) * size_of::<T>();
        Packing { slab: slab.min(cache_bytes()), buffer: (rows + columns) * size_of::<T>() }
    }

    /// A bound for both.
    #[must_use]
    pub fn max(self, other: Packing) -> Packing {
        Packing { slab: self.slab.max(other.slab), buffer: self.buffer.max(other.buffer) }
    }

    /// Makes the allocator keep to the bound.
    ///
    /// glibc maps a block that is larger than any freed before and takes smaller ones from its heap, so buffers that grow
    /// from call to call would stand beside the memory of those before. A block of the largest size, given back untouched, tells
    /// it ahead.
    pub fn prepare(self) {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(self.buffer + (64 << 10))));
    }

    /// Bytes for so many threads: whole pages, and what the allocator adds.
    pub fn bytes(self, threads: usize) -> usize {
        const PAGE: usize = 4096;
        let pages = |n: usize| if n == 0 { 0 } else { (n + 2 * PAGE).next_multiple_of(PAGE) };
        threads * (pages(self.slab) + pages(self.buffer))
    }
}

/// Allocates the calling thread's slab, before any buffer: a buffer below it in the heap would leave a hole.
pub(crate) fn prepare_thread() {
    gemm_common::gemm::L2_SLAB.with(|_| ());
    settle_heap();
}

/// Makes the allocator join what the library gives back in this thread, so that the next buffer takes the same place.
///
/// The library asks for aligned buffers. glibc cuts small pieces off both ends, and as long as its list of such pieces (at
/// most 7, since 2.42 16 of a size in each thread) has room, they go there instead of back to their neighbours: a buffer that is
/// freed then cannot be used for the next one of its size, and memory grows to nine times the largest buffer (measured:
/// 4.5 MiB for buffers of 512 KiB). Full lists prevent it. Allocators of other kinds do not mind.
pub fn settle_heap() {
    const SIZES: usize = 11;
    const COUNT: usize = 16;
    let layout = |class: usize| Layout::from_size_align(24 + 16 * class, 8).expect("a small size");
    let mut blocks = [[std::ptr::null_mut::<u8>(); COUNT]; SIZES];
    for (class, blocks) in blocks.iter_mut().enumerate() {
        // SAFETY: the size is not zero.
        blocks.iter_mut().for_each(|block| *block = unsafe { std::alloc::alloc(layout(class)) });
    }
    for (class, blocks) in blocks.iter().enumerate() {
        for &block in blocks.iter().filter(|block| !block.is_null()) {
            // SAFETY: allocated above with this layout.
            unsafe { std::alloc::dealloc(std::hint::black_box(block), layout(class)) };
        }
    }
}

fn rounded(n: usize) -> usize {
    n.next_multiple_of(REGISTER_TILE)
}

/// The size of the second-level cache as the library sees it, or a cautious guess.
fn cache_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let size = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size").unwrap_or_default();
        let kib: usize = size.trim().trim_end_matches('K').parse().unwrap_or(2048);
        kib << 10
    })
}

/// How the rows are cut into tiles: whole blocks, some of them joined, then what is left.
#[derive(Clone, Copy)]
struct RowTiles {
    rows: usize,
    whole_blocks: usize,
    /// Blocks of a tile.
    joined: usize,
    count: usize,
}

impl RowTiles {
    /// As tall as possible with enough tiles for all threads.
    fn new(rows: usize, tiles_n: usize, threads: usize, most: usize) -> RowTiles {
        let whole_blocks = rows / TILE_ROWS;
        let mut joined = most;
        while joined > 1 && whole_blocks.div_ceil(joined) * tiles_n < 2 * threads {
            joined /= 2;
        }
        let rest = !rows.is_multiple_of(TILE_ROWS);
        RowTiles { rows, whole_blocks, joined, count: whole_blocks.div_ceil(joined) + rest as usize }
    }

    /// First row and number of rows of a tile.
    fn get(&self, tile: usize) -> (usize, usize) {
        let (first, end) = (tile * self.joined, (tile + 1) * self.joined);
        if first < self.whole_blocks {
            let end = end.min(self.whole_blocks);
            return (first * TILE_ROWS, (end - first) * TILE_ROWS);
        }
        let start = self.whole_blocks * TILE_ROWS;
        (start, self.rows - start)
    }
}

/// Tiles are as wide as the output unless that leaves too few of them for two cores and more.
fn tile_columns(k: usize, n: usize, chunk: usize) -> usize {
    if n * k < SMALL_RIGHT {
        return n.max(1);
    }
    let least = if chunk < k { SUM_COLUMNS } else { 64 };
    n.div_ceil(4).next_multiple_of(64).clamp(least, TILE_COLUMNS)
}

fn sizes<T>(a: &Mat<'_, T>, b: &Mat<'_, T>, c: &MatMut<'_, T>) -> (usize, usize, usize) {
    assert_eq!(a.columns, b.rows, "inner sizes differ");
    assert_eq!((a.rows, b.columns), (c.rows, c.columns), "output size differs");
    (a.rows, a.columns, b.columns)
}

struct Target<T> {
    ptr: *mut T,
    row_stride: usize,
    column_stride: usize,
    /// One row or one column in all.
    thin: bool,
}

impl<T> Target<T> {
    fn new(c: MatMut<'_, T>) -> Target<T> {
        let thin = c.rows == 1 || c.columns == 1;
        Target { ptr: c.data.as_mut_ptr(), row_stride: c.row_stride, column_stride: c.column_stride, thin }
    }
}

// SAFETY: tasks write disjoint tiles of the target.
unsafe impl<T: Send> Sync for Target<T> {}

/// One tile of the output.
///
/// # Safety
/// The tile must lie inside the target and be written by nobody else meanwhile.
unsafe fn tile<T: Scalar>(
    a: &Mat<'_, T>,
    b: &Mat<'_, T>,
    c: &Target<T>,
    (i, rows): (usize, usize),
    (j, columns): (usize, usize),
    k: usize,
    into: Into,
    chunk: usize,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    // SAFETY: inside the target by the caller's promise.
    let dst = unsafe { c.ptr.add(i * c.row_stride + j * c.column_stride) };
    if k == 0 {
        if into == Into::Overwrite {
            for (r, q) in (0..rows).flat_map(|r| (0..columns).map(move |q| (r, q))) {
                // SAFETY: inside the tile.
                unsafe { *dst.add(r * c.row_stride + q * c.column_stride) = T::NOTHING };
            }
        }
        return;
    }
    // Up to this many results in one column the library takes the same way, so no more are asked for at once.
    let height = if c.thin && columns == 1 { TILE_ROWS } else { rows };
    for row in (0..rows).step_by(height) {
        let (i, rows) = (i + row, height.min(rows - row));
        // SAFETY: inside the target by the caller's promise.
        let dst = unsafe { dst.add(row * c.row_stride) };
        for start in (0..k).step_by(chunk.min(k)) {
            let terms = chunk.min(k - start);
            let depth = terms.div_ceil(terms.div_ceil(DEPTH));
            for piece in (start..start + terms).step_by(depth) {
                let depth = depth.min(start + terms - piece);
                let add = piece > 0 || into == Into::Add;
                // SAFETY: the operands' bounds were checked when they were made, the target's by the caller.
                unsafe { call(a, b, c, dst, (i, rows), (j, columns), (piece, depth), add) };
            }
        }
    }
}

/// One call of the library.
///
/// # Safety
/// The tile at `dst` must lie inside the target and the terms inside the operands.
unsafe fn call<T: Scalar>(
    a: &Mat<'_, T>,
    b: &Mat<'_, T>,
    c: &Target<T>,
    dst: *mut T,
    (i, rows): (usize, usize),
    (j, columns): (usize, usize),
    (piece, depth): (usize, usize),
    add: bool,
) {
    // The library has quicker ways for a few results, each with an order of its own. For a product of one row or column
    // they are worth it; elsewhere they would make a row's bits depend on the number of rows. It takes none of them when the
    // target is to be conjugated, which for real numbers changes nothing else.
    let conjugate = !c.thin;
    let stride = |n: usize| n as isize;
    // SAFETY: inside the operands by the caller's promise.
    let (left, right) = unsafe {
        let left = a.data.as_ptr().add(i * a.row_stride + piece * a.column_stride);
        (left, b.data.as_ptr().add(piece * b.row_stride + j * b.column_stride))
    };
    let of_a = (left, stride(a.column_stride), stride(a.row_stride));
    let of_b = (right, stride(b.column_stride), stride(b.row_stride));
    // It works on columns: a target with rows side by side is computed transposed.
    let transposed = |(ptr, column, row)| (ptr, row, column);
    let of_c = (stride(c.column_stride), stride(c.row_stride));
    let (m, n, of_c, lhs, rhs) = match of_c.0 < of_c.1 {
        true => (columns, rows, (of_c.1, of_c.0), transposed(of_b), transposed(of_a)),
        false => (rows, columns, of_c, of_a, of_b),
    };
    let keep = if add { T::UNIT } else { T::NOTHING };
    // SAFETY: as promised by the caller.
    unsafe {
        T::library()(
            m,
            n,
            depth,
            dst,
            of_c.0,
            of_c.1,
            add,
            lhs.0,
            lhs.1,
            lhs.2,
            rhs.0,
            rhs.1,
            rhs.2,
            keep,
            T::UNIT,
            conjugate,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(n: usize, seed: u64) -> Vec<f32> {
        let mut z = seed;
        let mut next = || {
            z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (z >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    #[track_caller]
    fn check(m: usize, k: usize, n: usize, ta: bool, tb: bool, into: Into, chunk: usize) {
        let (a, b, old) = (fill(m * k, 1), fill(k * n, 2), fill(m * n, 3));
        let mat_a = if ta { Mat::new(&a, k, m).t() } else { Mat::new(&a, m, k) };
        let mat_b = if tb { Mat::new(&b, n, k).t() } else { Mat::new(&b, k, n) };
        // Many threads make low tiles, few make tall ones.
        let runs = [1, 2, 3, 16].map(|threads| {
            let mut c = old.clone();
            matmul(&Pool::new(threads), mat_a, mat_b, MatMut::new(&mut c, m, n), into, chunk);
            c
        });
        assert!(runs.iter().all(|c| *c == runs[0]), "bits depend on the threads");
        for i in 0..m {
            for j in 0..n {
                let mut sum = if into == Into::Add { old[i * n + j] as f64 } else { 0.0 };
                for l in 0..k {
                    let x = if ta { a[l * m + i] } else { a[i * k + l] };
                    let y = if tb { b[j * k + l] } else { b[l * n + j] };
                    sum += x as f64 * y as f64;
                }
                let got = runs[0][i * n + j] as f64;
                assert!((got - sum).abs() < 1e-5 * (k as f64 + 4.0), "at {i},{j}: {got} and {sum}");
            }
        }
    }

    #[test]
    fn agrees_with_the_naive_product() {
        for (m, k, n) in
            [(1, 1, 1), (32, 100, 33), (300, 40, 70), (1, 50, 300), (5, 0, 3), (257, 130, 513), (1300, 530, 300)]
        {
            for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
                check(m, k, n, ta, tb, Into::Overwrite, usize::MAX);
                check(m, k, n, ta, tb, Into::Add, 16);
            }
        }
    }

    /// Any rows alone, and any whole chunks of the inner axis added up, give the bits of the whole product.
    #[test]
    fn slices_give_the_same_bits() {
        let sizes = [(1, 200), (2, 7), (300, 200), (700, 1), (40, 1), (1500, 2), (600, 64), (600, 3), (1030, 300)];
        for ((k, n), m) in sizes.into_iter().zip([1030, 300, 4100, 5000, 90, 260, 1300, 77, 515]) {
            let (a, b) = (fill(m * k, 1), fill(k * n, 2));
            for transposed in [false, true] {
                let right = if transposed { Mat::new(&b, n, k).t() } else { Mat::new(&b, k, n) };
                let product = |threads: usize, from: usize, to: usize| {
                    let mut c = vec![0.0; (to - from) * n];
                    let (rows, out) = (Mat::new(&a[from * k..], to - from, k), MatMut::new(&mut c, to - from, n));
                    matmul(&Pool::new(threads), rows, right, out, Into::Overwrite, usize::MAX);
                    c
                };
                let whole = product(1, 0, m);
                for (from, to) in [(0, 2), (1, 4), (3, 68), (5, m / 2), (m / 2, m), (m - 2, m)] {
                    let part = product(2, from, to);
                    assert!(whole[from * n..to * n] == part[..], "rows {from} to {to} of {m} x {k} x {n} {transposed}");
                }
            }
            // The rows of both operands summed over.
            let chunk = chunk_terms(k, n);
            let dy = fill(m * n, 3);
            let sum = |parts: &[usize]| {
                let mut c = vec![f32::NAN; k * n];
                for (i, range) in parts.windows(2).enumerate() {
                    let (from, to) = (range[0].min(m), range[1].min(m));
                    let into = if i == 0 { Into::Overwrite } else { Into::Add };
                    let left = Mat::new(&a[from * k..], to - from, k).t();
                    let right = Mat::new(&dy[from * n..], to - from, n);
                    matmul(&Pool::new(2), left, right, MatMut::new(&mut c, k, n), into, chunk);
                }
                c
            };
            let whole = sum(&[0, m]);
            assert!(whole == sum(&[0, chunk, 3 * chunk, m]), "a sum over {m} rows in slices, {k} x {n}");
        }
    }
}
