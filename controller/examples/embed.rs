// SPDX-License-Identifier: Apache-2.0
//! One prefill step of an engine with Striata as its cache, on the simulated device: c = 4 ranks,
//! the same prompt twice, with its pages pushed out to host memory in between.

use std::error::Error;
use std::sync::Arc;

use striata::core::prefix::Namespace;
use striata::core::{LayerId, PageGeometry, PoolGeometry, PoolKind, Stripe};
use striata::gpu::Device;
use striata::gpu::sim::{SimConfig, SimDevice};
use striata::kernels::rows::{PageSeed, RowParams, RowSpan};
use striata::{Confirm, HiCache, HiCacheSetup, Lease, PlannerConfig, Prefix, Reserve};

const LAYERS: u32 = 8;
const ROW_BYTES: u32 = 1152;

fn main() -> Result<(), Box<dyn Error>> {
    // Four ranks share every widened page of 4 x 16 = 64 tokens; 8 pages of L1, 64 of L2.
    let stripe = Stripe::new(4, 16)?;
    let page = PageGeometry::new(stripe.page_rows(), ROW_BYTES, LAYERS)?;
    let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, 8 * 16)?;
    let setup = HiCacheSetup::new(PlannerConfig::new(pool, 64));
    let devices: Vec<_> = stripe
        .ranks()
        .map(|r| SimDevice::new(SimConfig::named(r.get())))
        .collect::<Result<_, _>>()?;
    let streams = devices
        .iter()
        .map(|d| d.stream("compute"))
        .collect::<Result<Vec<_>, _>>()?;
    let mut cache = HiCache::new(&setup, devices)?;
    let model = Namespace::new("example-model");

    let prompt: Vec<u32> = (0..300).collect();
    let other: Vec<u32> = (1000..1500).collect();
    for (name, tokens) in [("first", &prompt), ("other", &other), ("again", &prompt)] {
        // match and reserve: the page table of the whole request, or a number that says why not
        let Reserve::Granted(lease) = cache.reserve(&model, Prefix::Tokens(tokens))? else {
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
        for layer in 0..LAYERS {
            for (rank, stream) in streams.iter().enumerate() {
                // the layer's rows may be read by what follows on the stream
                cache.wait_layer(&lease, rank, LayerId::new(layer), stream)?;
                forward(&cache, &lease, rank, layer, stream)?;
            }
        }
        cache.step_end(&streams)?;
        if cache.confirm_blocking(&lease)? != Confirm::Done {
            return Err("a load failed".into());
        }
        let inserted = cache.insert(&lease, lease.tokens())?;
        println!(
            "  {} pages are new, {} go to L2",
            inserted.new_pages, inserted.stored_pages
        );
        drop(lease);
        cache.drain()?;
    }
    let stats = cache.stats();
    println!(
        "{} pages loaded back, {} stored",
        stats.loaded_pages, stats.stored_pages
    );
    Ok(())
}

/// Stands for the model: writes this rank's rows of the tokens that are computed.
fn forward<D: Device>(
    cache: &HiCache<D>,
    lease: &Lease,
    rank: usize,
    layer: u32,
    stream: &D::Stream,
) -> Result<(), Box<dyn Error>> {
    let stripe = cache.stripe();
    let shard = cache.shards().shard(rank)?;
    let hits = usize::try_from(stripe.whole_pages(lease.hit_tokens()))?;
    let rows = stripe.page_rows();
    let spans: Arc<[RowSpan]> = lease.pages()[hits..]
        .iter()
        .map(|page| RowSpan {
            seed: PageSeed::new(0, u128::from(page.get()), 0),
            first_row: stripe.page_row_range(*page).start,
            rows,
            skip: 0,
        })
        .collect();
    let (plane, base) = shard.planes().plane(LayerId::new(layer));
    let rank = shard.dcp_rank().get();
    let params = RowParams {
        row_words: ROW_BYTES / 4,
        layer,
        rank,
        stride: 1,
    };
    shard
        .device()
        .fill_rows(stream, plane, base, params, &spans)?;
    Ok(())
}
