// SPDX-License-Identifier: Apache-2.0
//! Rows of a plane by list, to and from a dense buffer: contract and reference.

/// Bytes that a kernel moves at a time: the widest of 16, 8 and 4 that divides the row and every
/// address; none if 4 does not.
#[must_use]
pub fn unit_of(row_bytes: u32, addresses: &[u64]) -> Option<u32> {
    [16u32, 8, 4].into_iter().find(|unit| {
        let divides = |address: &u64| address.is_multiple_of(u64::from(*unit));
        row_bytes.is_multiple_of(*unit) && addresses.iter().all(divides)
    })
}

/// Copies row `list[i]` of `plane` to row i of `dense`.
///
/// Returns false, and has copied the rows before it, if a row leaves its buffer.
#[must_use]
pub fn gather(plane: &[u8], row_bytes: usize, list: &[u64], dense: &mut [u8]) -> bool {
    list.iter().enumerate().all(|(index, row)| {
        let (Some(from), Some(to)) = (
            range(*row, row_bytes).and_then(|range| plane.get(range)),
            range(index as u64, row_bytes).and_then(|range| dense.get_mut(range)),
        ) else {
            return false;
        };
        to.copy_from_slice(from);
        true
    })
}

/// Copies row i of `dense` to row `list[i]` of `plane`. A list names no row twice.
///
/// Returns false, and has copied the rows before it, if a row leaves its buffer.
#[must_use]
pub fn scatter(plane: &mut [u8], row_bytes: usize, list: &[u64], dense: &[u8]) -> bool {
    list.iter().enumerate().all(|(index, row)| {
        let (Some(to), Some(from)) = (
            range(*row, row_bytes).and_then(|range| plane.get_mut(range)),
            range(index as u64, row_bytes).and_then(|range| dense.get(range)),
        ) else {
            return false;
        };
        to.copy_from_slice(from);
        true
    })
}

fn range(row: u64, row_bytes: usize) -> Option<core::ops::Range<usize>> {
    let start = usize::try_from(row).ok()?.checked_mul(row_bytes)?;
    Some(start..start.checked_add(row_bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail if only the row is looked at, and no address.
    #[test]
    fn b41_the_unit_is_the_widest_that_divides_everything() {
        let unit = |bytes, addresses: &[u64]| unit_of(bytes, addresses);
        assert_eq!(unit(1152, &[4096, 256]), Some(16));
        assert_eq!(unit(584, &[4096]), Some(8));
        assert_eq!(unit(12, &[4096]), Some(4));
        assert_eq!(unit(1152, &[4096, 264]), Some(8));
        assert_eq!(unit(1152, &[4100]), Some(4));
        assert_eq!(unit(6, &[0]), None);
        assert_eq!(unit(8, &[2]), None);
    }

    #[test]
    fn gather_and_scatter_are_inverse_and_stay_inside() {
        let plane: Vec<u8> = (0..24).collect();
        let mut dense = [0; 8];
        assert!(gather(&plane, 4, &[5, 1], &mut dense));
        assert_eq!(dense, [20, 21, 22, 23, 4, 5, 6, 7]);
        let mut other = vec![99; 24];
        assert!(scatter(&mut other, 4, &[0, 2], &dense));
        assert_eq!(other[..12], [20, 21, 22, 23, 99, 99, 99, 99, 4, 5, 6, 7]);
        assert!(!gather(&plane, 4, &[6], &mut dense));
        assert!(!scatter(&mut other, 4, &[u64::MAX], &dense));
    }
}
