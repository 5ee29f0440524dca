// SPDX-License-Identifier: Apache-2.0
//! The seam to a device's page-locking, and the registrations of a pool.

use std::fmt;
use std::sync::Arc;

/// Host memory that is registered or released as one.
///
/// From a successful `register` to its `unregister` the memory stays mapped at this address; the
/// pool upholds that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PinRegion {
    /// Address of the first byte.
    pub address: usize,
    /// Bytes.
    pub bytes: usize,
}

/// What a device said when it refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (code {code})")]
pub struct PinError {
    /// Code of the platform.
    pub code: i32,
    /// The code in words.
    pub reason: String,
}

/// Page-locks host memory, so that copy engines can reach it.
pub trait PagePinner: fmt::Debug + Send + Sync {
    /// Whether registered memory is really page-locked.
    fn locks_pages(&self) -> bool;

    /// Registers one region. Regions of one pool never overlap.
    ///
    /// # Errors
    /// The platform's refusal; nothing is registered then.
    fn register(&self, region: PinRegion) -> Result<(), PinError>;

    /// Takes the registration of one region back.
    ///
    /// # Errors
    /// The platform's refusal.
    fn unregister(&self, region: PinRegion) -> Result<(), PinError>;
}

/// Registers nothing: for simulated devices and machines without one.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPin;

impl PagePinner for NoPin {
    fn locks_pages(&self) -> bool {
        false
    }
    fn register(&self, _region: PinRegion) -> Result<(), PinError> {
        Ok(())
    }
    fn unregister(&self, _region: PinRegion) -> Result<(), PinError> {
        Ok(())
    }
}

/// Registrations that are taken back, the last first, when this is dropped.
#[derive(Debug)]
pub(crate) struct Pins {
    pinner: Arc<dyn PagePinner>,
    regions: Vec<PinRegion>,
}

impl Pins {
    /// Registers `regions` in order; at the first refusal those before it are taken back, and the
    /// index of the refused one is returned.
    pub(crate) fn register(
        pinner: Arc<dyn PagePinner>,
        regions: impl ExactSizeIterator<Item = PinRegion>,
    ) -> Result<Self, (usize, PinError)> {
        let mut pins = Self {
            pinner,
            regions: Vec::with_capacity(regions.len()),
        };
        for (index, region) in regions.enumerate() {
            pins.pinner
                .register(region)
                .map_err(|cause| (index, cause))?;
            pins.regions.push(region);
        }
        Ok(pins)
    }

    /// Regions that are registered.
    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        while let Some(region) = self.regions.pop() {
            if let Err(error) = self.pinner.unregister(region) {
                tracing::error!(
                    address = region.address,
                    bytes = region.bytes,
                    %error,
                    "host memory could not be unregistered"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Writes down what it is asked and refuses one address.
    #[derive(Debug, Default)]
    struct Recorder {
        calls: Mutex<Vec<(char, usize)>>,
        refused: Option<usize>,
    }

    impl Recorder {
        fn note(&self, what: char, region: PinRegion) {
            self.calls.lock().unwrap().push((what, region.address));
        }
    }

    impl PagePinner for Recorder {
        fn locks_pages(&self) -> bool {
            true
        }
        fn register(&self, region: PinRegion) -> Result<(), PinError> {
            self.note('r', region);
            if self.refused == Some(region.address) {
                let reason = "no".to_owned();
                return Err(PinError { code: 2, reason });
            }
            Ok(())
        }
        fn unregister(&self, region: PinRegion) -> Result<(), PinError> {
            self.note('u', region);
            Ok(())
        }
    }

    fn regions(count: usize) -> impl ExactSizeIterator<Item = PinRegion> {
        (0..count).map(|address| PinRegion { address, bytes: 1 })
    }

    #[test]
    fn a_refusal_takes_the_earlier_regions_back_in_reverse() {
        let recorder = Arc::new(Recorder {
            refused: Some(2),
            ..Recorder::default()
        });
        let (index, cause) = Pins::register(recorder.clone(), regions(4)).unwrap_err();
        assert_eq!((index, cause.code), (2, 2));
        let calls = recorder.calls.lock().unwrap().clone();
        assert_eq!(calls, [('r', 0), ('r', 1), ('r', 2), ('u', 1), ('u', 0)]);
    }

    #[test]
    fn dropping_takes_all_back_in_reverse() {
        let recorder = Arc::new(Recorder::default());
        let pins = Pins::register(recorder.clone(), regions(2)).unwrap();
        assert_eq!(pins.len(), 2);
        drop(pins);
        let calls = recorder.calls.lock().unwrap().clone();
        assert_eq!(calls, [('r', 0), ('r', 1), ('u', 1), ('u', 0)]);
    }
}
