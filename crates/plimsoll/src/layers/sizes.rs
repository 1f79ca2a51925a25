//! Sizes along the spatial axes of an image.

/// A size for each of `N` axes; a single number stands for all of them.
///
/// ```
/// use plimsoll::layers::Sizes;
/// assert_eq!(Sizes::<2>::from(3), Sizes::from([3, 3]));
/// assert_eq!(Sizes::from((3, 1)), Sizes::from([3, 1]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes<const N: usize>(pub [usize; N]);

impl<const N: usize> From<usize> for Sizes<N> {
    fn from(size: usize) -> Sizes<N> {
        Sizes([size; N])
    }
}

impl<const N: usize> From<[usize; N]> for Sizes<N> {
    fn from(sizes: [usize; N]) -> Sizes<N> {
        Sizes(sizes)
    }
}

impl From<(usize, usize)> for Sizes<2> {
    fn from((height, width): (usize, usize)) -> Sizes<2> {
        Sizes([height, width])
    }
}

impl From<(usize, usize, usize)> for Sizes<3> {
    fn from((depth, height, width): (usize, usize, usize)) -> Sizes<3> {
        Sizes([depth, height, width])
    }
}

/// What is added or taken away before and after, for each of `N` axes; a single number stands for all of them, a number
/// for an axis for both of its ends.
///
/// ```
/// use plimsoll::layers::Margins;
/// assert_eq!(Margins::<2>::from(1), Margins::from([(1, 1), (1, 1)]));
/// assert_eq!(Margins::from([1, 2]), Margins::from([(1, 1), (2, 2)]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Margins<const N: usize>(pub [(usize, usize); N]);

impl<const N: usize> From<usize> for Margins<N> {
    fn from(size: usize) -> Margins<N> {
        Margins([(size, size); N])
    }
}

impl<const N: usize> From<[usize; N]> for Margins<N> {
    fn from(sizes: [usize; N]) -> Margins<N> {
        Margins(sizes.map(|size| (size, size)))
    }
}

impl<const N: usize> From<[(usize, usize); N]> for Margins<N> {
    fn from(margins: [(usize, usize); N]) -> Margins<N> {
        Margins(margins)
    }
}
