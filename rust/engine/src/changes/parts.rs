//! A feed in parts, for readers in other processes.
//!
//! Owns: how fragments are spread over parts: in the order of the feed, about the same number of
//! rows each, every fragment of a version in one part.
//! Does not own: the reading of a part (`feed`).

use super::types::{ChangePart, ChangeSlice, Image};

/// A piece of a feed that goes to one part.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The slice without fragments.
    pub slice: ChangeSlice,
    /// Changed fragments of the piece.
    pub fragments: Vec<(Image, u32)>,
    /// Rows that differ in them.
    pub rows: u64,
}

/// At most `parts` parts, none without a piece.
pub fn spread(pieces: Vec<Piece>, parts: usize) -> Vec<ChangePart> {
    let total: u64 = pieces.iter().map(|piece| piece.rows).sum();
    let mut spread: Vec<ChangePart> = Vec::new();
    let (mut before, mut current) = (0_u64, None);
    for piece in pieces {
        // The part in which the middle row of the piece falls.
        let middle = u128::from(before) + u128::from(piece.rows / 2);
        let place = middle * parts as u128 / u128::from(total.max(1));
        before += piece.rows;
        if current != Some(place) {
            spread.push(ChangePart::default());
            current = Some(place);
        }
        if let Some(part) = spread.last_mut() {
            push(part, piece);
        }
    }
    spread
}

fn push(part: &mut ChangePart, piece: Piece) {
    let is_of = |slice: &ChangeSlice| slice.version == piece.slice.version;
    if !part.slices.last().is_some_and(is_of) {
        part.slices.push(piece.slice);
    }
    let Some(slice) = part.slices.last_mut() else { return };
    for (image, fragment) in piece.fragments {
        match image {
            Image::Before => slice.before.push(fragment),
            Image::After => slice.after.push(fragment),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(version: u64, image: Image, fragment: u32, rows: u64) -> Piece {
        let (base, before, after) = (Some(version - 1), Vec::new(), Vec::new());
        let slice = ChangeSlice { base, version, is_net: false, before, after };
        Piece { slice, fragments: vec![(image, fragment)], rows }
    }

    #[test]
    fn every_piece_is_in_one_part_and_the_order_stays() {
        let pieces: Vec<Piece> = vec![
            piece(5, Image::Before, 0, 10),
            piece(5, Image::Before, 1, 10),
            piece(5, Image::After, 2, 20),
            piece(6, Image::After, 3, 1),
            piece(7, Image::Before, 2, 39),
        ];
        for parts in 1..9 {
            let spread = spread(pieces.clone(), parts);
            assert!(!spread.is_empty() && spread.len() <= parts, "{parts}: {spread:?}");
            let slices = spread.iter().flat_map(|part| &part.slices);
            let found: Vec<(u64, u32)> = slices
                .flat_map(|slice| {
                    let fragments = slice.before.iter().chain(&slice.after);
                    fragments.map(|fragment| (slice.version, *fragment)).collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(found, [(5, 0), (5, 1), (5, 2), (6, 3), (7, 2)]);
        }
    }

    #[test]
    fn a_feed_without_changes_has_no_part() {
        assert!(spread(Vec::new(), 3).is_empty());
    }
}
