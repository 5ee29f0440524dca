// SPDX-License-Identifier: Apache-2.0
//! Closed sets of names that a configuration chooses from.

use super::ConfigError;

macro_rules! names {
    (
        $(#[$doc:meta])*
        $type:ident, $what:literal {
            $($(#[$variant_doc:meta])* $variant:ident = $name:literal),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize,
            serde::Deserialize,
        )]
        pub enum $type {
            $($(#[$variant_doc])* #[serde(rename = $name)] $variant),+
        }

        impl $type {
            /// Every value, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in configurations.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl core::str::FromStr for $type {
            type Err = ConfigError;

            fn from_str(text: &str) -> Result<Self, ConfigError> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|value| value.name() == text)
                    .ok_or_else(|| ConfigError::UnknownName {
                        what: $what,
                        name: text.to_owned(),
                        known: Self::ALL.iter().map(|value| value.name()).collect(),
                    })
            }
        }
    };
}

names! {
    /// When a page of L1 is also stored on L2.
    WritePolicy, "write policy" {
        /// At every insert.
        WriteThrough = "write_through",
        /// At the second insert that meets it.
        WriteThroughSelective = "write_through_selective",
        /// When it is evicted from L1.
        WriteBack = "write_back",
    }
}

names! {
    /// Which page goes first when a tier is short.
    PolicyName, "eviction policy" {
        /// Least recently used.
        Lru = "lru",
        /// Least frequently used.
        Lfu = "lfu",
        /// First in.
        Fifo = "fifo",
        /// Most recently used.
        Mru = "mru",
        /// Last in.
        Filo = "filo",
        /// Segmented LRU: pages that were hit again are protected.
        Slru = "slru",
        /// Lowest priority, then least recently used.
        Priority = "priority",
    }
}

names! {
    /// What copies between the tiers.
    IoBackend, "io backend" {
        /// GPU kernels.
        Kernel = "kernel",
        /// Copy engines.
        Direct = "direct",
    }
}

names! {
    /// Order of pages and layers on L2, by HiCache's names.
    MemLayout, "memory layout" {
        /// Layers, then rows.
        LayerFirst = "layer_first",
        /// Rows, then layers.
        PageFirst = "page_first",
        /// Pages, then layers, then rows.
        PageFirstDirect = "page_first_direct",
    }
}

names! {
    /// How partial results cross ranks.
    CommBackend, "dcp communication backend" {
        /// Query and LSE all-gather, output reduce-scatter.
        AgRs = "ag_rs",
        /// One packed all-to-all.
        A2a = "a2a",
        /// One-sided stores into the peers over a fabric, by its SGLang name.
        FiA2a = "fi_a2a",
        /// One-sided stores into the peers.
        Peer = "peer",
        /// Streams of one process that read each other's buffers.
        Stream = "stream",
        /// Host memory.
        Sim = "sim",
    }
}

names! {
    /// What attends in decode steps: names of ours, and of other engines for what ours do too.
    AttentionBackend, "attention backend" {
        /// The fastest of our kernels for the device and the shape.
        Striata = "striata",
        /// Our kernel of plain arithmetic.
        Simt = "simt",
        /// Our kernel for matrix units.
        Mma = "mma",
        /// FlashAttention 3.
        Fa3 = "fa3",
        /// FlashMLA.
        FlashMla = "flashmla",
        /// FlashInfer.
        FlashInfer = "flashinfer",
        /// The MLA kernel in CuTe DSL.
        CuteDslMla = "cutedsl_mla",
        /// The MLA kernel of TensorRT-LLM.
        TrtllmMla = "trtllm_mla",
        /// TokenSpeed's MLA kernel, for fp8 rows.
        TokenspeedMla = "tokenspeed_mla",
        /// Kernels in Triton.
        Triton = "triton",
        /// Kernels of Ascend NPUs.
        Ascend = "ascend",
        /// Kernels of AMD GPUs.
        Aiter = "aiter",
        /// PyTorch's own attention.
        TorchNative = "torch_native",
    }
}
