// SPDX-License-Identifier: Apache-2.0
//! The CUDA sources, embedded, and the kernels in them.

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
pub const HEADERS: [Header; 6] = [
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
        name: "attend_mma.cuh",
        text: include_str!("../cuda/attend_mma.cuh"),
    },
];

/// All sources.
pub const SOURCES: [Source; 16] = [
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
            Self::Combine => "striata_combine",
            Self::FillValues => "striata_fill_values",
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
            Self::Combine => 14,
            Self::FillValues => 15,
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
