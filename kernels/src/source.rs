// SPDX-License-Identifier: Apache-2.0
//! The CUDA sources, embedded, and the kernels in them.

use crate::decode::KernelFormat;
use crate::decode::schedule::MmaSize;

/// A header that sources include by its name.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Name in `#include`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// A file that is compiled to one binary.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Name of the file.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Its kernels.
    pub kernels: &'static [Kernel],
}

/// All headers; every source may include every one.
pub const HEADERS: [Header; 7] = [
    Header {
        name: "common.cuh",
        text: include_str!("../cuda/common.cuh"),
    },
    Header {
        name: "stripe.cuh",
        text: include_str!("../cuda/stripe.cuh"),
    },
    Header {
        name: "decode.cuh",
        text: include_str!("../cuda/decode.cuh"),
    },
    Header {
        name: "tensor.cuh",
        text: include_str!("../cuda/tensor.cuh"),
    },
    Header {
        name: "attend_work.cuh",
        text: include_str!("../cuda/attend_work.cuh"),
    },
    Header {
        name: "attend_tiles.cuh",
        text: include_str!("../cuda/attend_tiles.cuh"),
    },
    Header {
        name: "attend_mma.cuh",
        text: include_str!("../cuda/attend_mma.cuh"),
    },
];

/// All sources.
pub const SOURCES: [Source; 20] = [
    Source {
        name: "rows.cu",
        text: include_str!("../cuda/rows.cu"),
        kernels: &[Kernel::FillRows, Kernel::VerifyRows],
    },
    Source {
        name: "gather.cu",
        text: include_str!("../cuda/gather.cu"),
        kernels: &[
            Kernel::Gather16,
            Kernel::Gather8,
            Kernel::Gather4,
            Kernel::Scatter16,
            Kernel::Scatter8,
            Kernel::Scatter4,
            Kernel::GatherCells16,
            Kernel::GatherCells8,
            Kernel::GatherCells4,
            Kernel::ScatterCells16,
            Kernel::ScatterCells8,
            Kernel::ScatterCells4,
        ],
    },
    Source {
        name: "page_table.cu",
        text: include_str!("../cuda/page_table.cu"),
        kernels: &[Kernel::PageTables],
    },
    Source {
        name: "stripe_check.cu",
        text: include_str!("../cuda/stripe_check.cu"),
        kernels: &[Kernel::StripeCheck],
    },
    Source {
        name: "spin.cu",
        text: include_str!("../cuda/spin.cu"),
        kernels: &[Kernel::Spin],
    },
    Source {
        name: "page_copy.cu",
        text: include_str!("../cuda/page_copy.cu"),
        kernels: &[Kernel::PagesToDevice, Kernel::PagesToHost],
    },
    Source {
        name: "read.cu",
        text: include_str!("../cuda/read.cu"),
        kernels: &[Kernel::Read],
    },
    Source {
        name: "plan.cu",
        text: include_str!("../cuda/plan.cu"),
        kernels: &[Kernel::Plan, Kernel::Schedule],
    },
    Source {
        name: "write_rows.cu",
        text: include_str!("../cuda/write_rows.cu"),
        kernels: &[Kernel::WriteRows],
    },
    Source {
        name: "prefix.cu",
        text: include_str!("../cuda/prefix.cu"),
        kernels: &[Kernel::GatherPrefix],
    },
    Source {
        name: "merge.cu",
        text: include_str!("../cuda/merge.cu"),
        kernels: &[Kernel::Merge, Kernel::Pack],
    },
    Source {
        name: "attend_simt.cu",
        text: include_str!("../cuda/attend_simt.cu"),
        kernels: &[Kernel::AttendSimt],
    },
    Source {
        name: "attend_bf16.cu",
        text: include_str!("../cuda/attend_bf16.cu"),
        kernels: &[Kernel::AttendBf16M16, Kernel::AttendBf16M64],
    },
    Source {
        name: "attend_fp8.cu",
        text: include_str!("../cuda/attend_fp8.cu"),
        kernels: &[Kernel::AttendFp8M16, Kernel::AttendFp8M64],
    },
    Source {
        name: "attend_bf16_medium.cu",
        text: include_str!("../cuda/attend_bf16_medium.cu"),
        kernels: &[Kernel::AttendBf16MediumM16, Kernel::AttendBf16MediumM32],
    },
    Source {
        name: "attend_fp8_medium.cu",
        text: include_str!("../cuda/attend_fp8_medium.cu"),
        kernels: &[Kernel::AttendFp8MediumM16, Kernel::AttendFp8MediumM32],
    },
    Source {
        name: "attend_bf16_small.cu",
        text: include_str!("../cuda/attend_bf16_small.cu"),
        kernels: &[Kernel::AttendBf16SmallM16, Kernel::AttendBf16SmallM32],
    },
    Source {
        name: "attend_fp8_small.cu",
        text: include_str!("../cuda/attend_fp8_small.cu"),
        kernels: &[Kernel::AttendFp8SmallM16, Kernel::AttendFp8SmallM32],
    },
    Source {
        name: "combine.cu",
        text: include_str!("../cuda/combine.cu"),
        kernels: &[Kernel::Combine],
    },
    Source {
        name: "values.cu",
        text: include_str!("../cuda/values.cu"),
        kernels: &[Kernel::FillValues],
    },
];

/// A kernel that can be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Writes fingerprints.
    FillRows,
    /// Compares fingerprints.
    VerifyRows,
    /// Rows by list to a dense buffer, 16 bytes at a time.
    Gather16,
    /// The same, 8 bytes at a time.
    Gather8,
    /// The same, 4 bytes at a time.
    Gather4,
    /// Rows of a dense buffer by list, 16 bytes at a time.
    Scatter16,
    /// The same, 8 bytes at a time.
    Scatter8,
    /// The same, 4 bytes at a time.
    Scatter4,
    /// Cells of planes to a far side, 16 bytes at a time.
    GatherCells16,
    /// The same, 8 bytes at a time.
    GatherCells8,
    /// The same, 4 bytes at a time.
    GatherCells4,
    /// Cells of a far side to planes, 16 bytes at a time.
    ScatterCells16,
    /// The same, 8 bytes at a time.
    ScatterCells8,
    /// The same, 4 bytes at a time.
    ScatterCells4,
    /// Builds page tables.
    PageTables,
    /// Evaluates the stripe.
    StripeCheck,
    /// Lets time pass.
    Spin,
    /// Pages from mapped host memory, the baseline of a copy kernel.
    PagesToDevice,
    /// Pages to mapped host memory.
    PagesToHost,
    /// Reads memory and keeps nothing of it.
    Read,
    /// Plans a step: lengths, table, destinations.
    Plan,
    /// Divides the work of a step.
    Schedule,
    /// Writes new rows.
    WriteRows,
    /// Rows of a prefix as bf16.
    GatherPrefix,
    /// Merges packed partials.
    Merge,
    /// Packs partials, or unpacks them.
    Pack,
    /// Attention in plain f32.
    AttendSimt,
    /// Attention over bf16 rows, up to 16 query rows a block.
    AttendBf16M16,
    /// The same, 64 query rows a block.
    AttendBf16M64,
    /// Attention over fp8 rows, up to 16 query rows a block.
    AttendFp8M16,
    /// The same, 64 query rows a block.
    AttendFp8M64,
    /// Attention over bf16 rows in 163 KB of shared memory, up to 16 query rows a block.
    AttendBf16MediumM16,
    /// The same, 32 query rows a block.
    AttendBf16MediumM32,
    /// Attention over fp8 rows in 163 KB of shared memory, up to 16 query rows a block.
    AttendFp8MediumM16,
    /// The same, 32 query rows a block.
    AttendFp8MediumM32,
    /// Attention over bf16 rows in 99 KB of shared memory, up to 16 query rows a block.
    AttendBf16SmallM16,
    /// The same, 32 query rows a block.
    AttendBf16SmallM32,
    /// Attention over fp8 rows in 99 KB of shared memory, up to 16 query rows a block.
    AttendFp8SmallM16,
    /// The same, 32 query rows a block.
    AttendFp8SmallM32,
    /// Merges the pieces of requests that were cut.
    Combine,
    /// Writes rows of values.
    FillValues,
}

impl Kernel {
    /// How many kernels there are.
    pub const COUNT: usize = Self::FillValues as usize + 1;

    /// The name of its entry point.
    #[must_use]
    pub const fn entry(self) -> &'static str {
        match self {
            Self::FillRows => "striata_fill_rows",
            Self::VerifyRows => "striata_verify_rows",
            Self::Gather16 => "striata_gather_rows_16",
            Self::Gather8 => "striata_gather_rows_8",
            Self::Gather4 => "striata_gather_rows_4",
            Self::Scatter16 => "striata_scatter_rows_16",
            Self::Scatter8 => "striata_scatter_rows_8",
            Self::Scatter4 => "striata_scatter_rows_4",
            Self::GatherCells16 => "striata_gather_cells_16",
            Self::GatherCells8 => "striata_gather_cells_8",
            Self::GatherCells4 => "striata_gather_cells_4",
            Self::ScatterCells16 => "striata_scatter_cells_16",
            Self::ScatterCells8 => "striata_scatter_cells_8",
            Self::ScatterCells4 => "striata_scatter_cells_4",
            Self::PageTables => "striata_page_tables",
            Self::StripeCheck => "striata_stripe_check",
            Self::Spin => "striata_spin",
            Self::PagesToDevice => "striata_pages_to_device",
            Self::PagesToHost => "striata_pages_to_host",
            Self::Read => "striata_read",
            Self::Plan => "striata_plan",
            Self::Schedule => "striata_schedule",
            Self::WriteRows => "striata_write_rows",
            Self::GatherPrefix => "striata_gather_prefix",
            Self::Merge => "striata_merge",
            Self::Pack => "striata_pack",
            Self::AttendSimt => "striata_attend_simt",
            Self::AttendBf16M16 => "striata_attend_bf16_16",
            Self::AttendBf16M64 => "striata_attend_bf16_64",
            Self::AttendFp8M16 => "striata_attend_fp8_16",
            Self::AttendFp8M64 => "striata_attend_fp8_64",
            Self::AttendBf16MediumM16 => "striata_attend_bf16_medium_16",
            Self::AttendBf16MediumM32 => "striata_attend_bf16_medium_32",
            Self::AttendFp8MediumM16 => "striata_attend_fp8_medium_16",
            Self::AttendFp8MediumM32 => "striata_attend_fp8_medium_32",
            Self::AttendBf16SmallM16 => "striata_attend_bf16_small_16",
            Self::AttendBf16SmallM32 => "striata_attend_bf16_small_32",
            Self::AttendFp8SmallM16 => "striata_attend_fp8_small_16",
            Self::AttendFp8SmallM32 => "striata_attend_fp8_small_32",
            Self::Combine => "striata_combine",
            Self::FillValues => "striata_fill_values",
        }
    }

    /// Which tensor-core kernels it is one of.
    #[must_use]
    pub const fn mma_size(self) -> Option<MmaSize> {
        match self {
            Self::AttendBf16M16 | Self::AttendBf16M64 | Self::AttendFp8M16 | Self::AttendFp8M64 => {
                Some(MmaSize::Large)
            }
            Self::AttendBf16MediumM16
            | Self::AttendBf16MediumM32
            | Self::AttendFp8MediumM16
            | Self::AttendFp8MediumM32 => Some(MmaSize::Medium),
            Self::AttendBf16SmallM16
            | Self::AttendBf16SmallM32
            | Self::AttendFp8SmallM16
            | Self::AttendFp8SmallM32 => Some(MmaSize::Small),
            _ => None,
        }
    }

    /// The tensor-core kernel of a size for a format; `wide`: for the larger of its two blocks.
    #[must_use]
    pub const fn attend(size: MmaSize, format: KernelFormat, wide: bool) -> Self {
        match (size, matches!(format, KernelFormat::Bf16), wide) {
            (MmaSize::Large, true, false) => Self::AttendBf16M16,
            (MmaSize::Large, true, true) => Self::AttendBf16M64,
            (MmaSize::Large, false, false) => Self::AttendFp8M16,
            (MmaSize::Large, false, true) => Self::AttendFp8M64,
            (MmaSize::Medium, true, false) => Self::AttendBf16MediumM16,
            (MmaSize::Medium, true, true) => Self::AttendBf16MediumM32,
            (MmaSize::Medium, false, false) => Self::AttendFp8MediumM16,
            (MmaSize::Medium, false, true) => Self::AttendFp8MediumM32,
            (MmaSize::Small, true, false) => Self::AttendBf16SmallM16,
            (MmaSize::Small, true, true) => Self::AttendBf16SmallM32,
            (MmaSize::Small, false, false) => Self::AttendFp8SmallM16,
            (MmaSize::Small, false, true) => Self::AttendFp8SmallM32,
        }
    }

    /// Bytes of shared memory that a launch asks for, beside what the kernel declares.
    #[must_use]
    pub const fn shared_bytes(self) -> u32 {
        match self {
            Self::AttendBf16M16 => 193_680,
            Self::AttendBf16M64 => 221_712,
            Self::AttendFp8M16 => 154_256,
            Self::AttendFp8M64 => 223_248,
            Self::AttendBf16MediumM16 => 156_816,
            Self::AttendBf16MediumM32 => 166_160,
            Self::AttendFp8MediumM16 => 154_256,
            Self::AttendFp8MediumM32 => 166_672,
            Self::AttendBf16SmallM16 => 82_064,
            Self::AttendBf16SmallM32 => 90_384,
            Self::AttendFp8SmallM16 => 87_184,
            Self::AttendFp8SmallM32 => 95_504,
            _ => 0,
        }
    }

    /// Index in [`SOURCES`] of the file that holds it.
    #[must_use]
    pub const fn source(self) -> usize {
        match self {
            Self::FillRows | Self::VerifyRows => 0,
            Self::Gather16
            | Self::Gather8
            | Self::Gather4
            | Self::Scatter16
            | Self::Scatter8
            | Self::Scatter4
            | Self::GatherCells16
            | Self::GatherCells8
            | Self::GatherCells4
            | Self::ScatterCells16
            | Self::ScatterCells8
            | Self::ScatterCells4 => 1,
            Self::PageTables => 2,
            Self::StripeCheck => 3,
            Self::Spin => 4,
            Self::PagesToDevice | Self::PagesToHost => 5,
            Self::Read => 6,
            Self::Plan | Self::Schedule => 7,
            Self::WriteRows => 8,
            Self::GatherPrefix => 9,
            Self::Merge | Self::Pack => 10,
            Self::AttendSimt => 11,
            Self::AttendBf16M16 | Self::AttendBf16M64 => 12,
            Self::AttendFp8M16 | Self::AttendFp8M64 => 13,
            Self::AttendBf16MediumM16 | Self::AttendBf16MediumM32 => 14,
            Self::AttendFp8MediumM16 | Self::AttendFp8MediumM32 => 15,
            Self::AttendBf16SmallM16 | Self::AttendBf16SmallM32 => 16,
            Self::AttendFp8SmallM16 | Self::AttendFp8SmallM32 => 17,
            Self::Combine => 18,
            Self::FillValues => 19,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_stands_in_the_source_that_lists_it() {
        let mut found = 0;
        for (index, source) in SOURCES.iter().enumerate() {
            for kernel in source.kernels {
                assert_eq!(kernel.source(), index);
                let entry = kernel.entry();
                let stem = entry.trim_end_matches(|c: char| c.is_ascii_digit());
                assert!(source.text.contains(stem), "{entry} in {}", source.name);
                found += 1;
            }
        }
        assert_eq!(found, Kernel::COUNT);
    }

    /// Opt-in shared memory of a block: compute capability 9.0 and 10.0; 8.0; 8.6, 8.9 and 12.0.
    #[test]
    fn every_size_has_a_kernel_for_every_format_and_fits_its_devices() {
        for size in MmaSize::ALL {
            let room = match size {
                MmaSize::Large => 227 << 10,
                MmaSize::Medium => 163 << 10,
                MmaSize::Small => 99 << 10,
            };
            for format in KernelFormat::ALL {
                for (wide, rows) in [false, true].into_iter().zip(size.block_rows()) {
                    let kernel = Kernel::attend(size, format, wide);
                    assert_eq!(kernel.mma_size(), Some(size));
                    assert!(kernel.shared_bytes() <= room, "{kernel:?}");
                    assert!(kernel.shared_bytes() <= size.shared_bytes());
                    assert!(kernel.entry().ends_with(&format!("_{rows}")), "{kernel:?}");
                }
            }
            assert!(size.shared_bytes() <= room);
        }
        let runs = |room| MmaSize::largest_in(room);
        assert_eq!(runs(227 << 10), Some(MmaSize::Large));
        assert_eq!(runs(163 << 10), Some(MmaSize::Medium));
        assert_eq!(runs(99 << 10), Some(MmaSize::Small));
        assert_eq!(runs(64 << 10), None);
    }

    #[test]
    fn sources_include_nothing_but_our_headers() {
        let files = SOURCES.iter().map(|s| (s.name, s.text));
        for (name, text) in files.chain(HEADERS.iter().map(|h| (h.name, h.text))) {
            assert!(text.is_ascii(), "{name}");
            for line in text.lines().filter(|line| line.starts_with("#include")) {
                let known = HEADERS
                    .iter()
                    .any(|h| line.contains(&format!("\"{}\"", h.name)));
                assert!(known, "{name}: {line}");
            }
        }
    }
}
