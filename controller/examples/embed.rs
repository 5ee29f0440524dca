// SPDX-License-Identifier: Apache-2.0
//! Prefill steps of an engine with Striata as its cache, on the simulated device: c = 4 ranks, the
//! same prompt twice, with its pages pushed out to host memory in between.

use std::error::Error;

use striata::core::prefix::{Namespace, NamespaceParts};
use striata::core::{LayerId, PageGeometry, PoolGeometry, PoolKind, Stripe};
use striata::gpu::Device;
use striata::gpu::sim::{SimConfig, SimDevice};
use striata::{Confirm, HiCache, HiCacheSetup, PlannerConfig, Prefix, Reserve};

const LAYERS: u32 = 8;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // Four ranks share every widened page of 4 x 16 = 64 tokens; 8 pages of L1, 64 of L2.
    let stripe = Stripe::new(4, 16)?;
    let page = PageGeometry::new(stripe.page_rows(), 1152, LAYERS)?;
    let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, 8 * 16)?;
    let setup = HiCacheSetup::new(PlannerConfig::new(pool, 64));
    let device = |rank: u32| SimDevice::new(SimConfig::new(rank));
    let devices: Vec<_> = stripe.ranks().map(|rank| device(rank.get())).collect();
    let streams = devices.iter().map(|d| d.stream("compute"));
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let mut cache = HiCache::new(&setup, devices)?;
    let parts = NamespaceParts {
        model: "example",
        ..NamespaceParts::default()
    };
    let model = Namespace::new(&parts);

    let prompt: Vec<u32> = (0..300).collect();
    let other: Vec<u32> = (1000..1500).collect();
    for (name, tokens) in [("first", &prompt), ("other", &other), ("again", &prompt)] {
        // Match and reserve: the page table of the whole request, or numbers that say why not.
        let Reserve::Granted(lease) = cache.reserve_blocking(model, Prefix::Tokens(tokens))? else {
            return Err("the request does not fit".into());
        };
        println!(
            "{name}: {} tokens, {} on L1, {} on L2, {} to compute",
            lease.tokens(),
            lease.hit_tokens_l1(),
            lease.hit_tokens_l2(),
            lease.tokens() - lease.hit_tokens()
        );
        cache.start_loads()?;
        for layer in (0..LAYERS).map(LayerId::new) {
            for (rank, stream) in streams.iter().enumerate() {
                // Whatever follows on the stream may read this layer of the lease's pages ...
                cache.wait_layer(&lease, rank, layer, stream)?;
                // ... here the model's kernels, which stand as 20 microseconds of work.
                cache
                    .shards()
                    .shard(rank)?
                    .device()
                    .occupy(stream, 20_000)?;
            }
        }
        cache.step_end(&streams)?;
        if cache.confirm_blocking(&lease)? != Confirm::Done {
            return Err("a load failed: compute the request again".into());
        }
        let inserted = cache.insert(&lease, lease.tokens())?;
        println!(
            "  {} new pages, {} go to L2",
            inserted.new_pages, inserted.stored.pages
        );
        drop(lease);
        cache.poll()?;
    }
    cache.drain()?;
    let stats = cache.stats();
    println!(
        "{} pages loaded back, {} stored",
        stats.loaded_pages, stats.stored_pages
    );
    Ok(())
}
