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
    /// No registration.
    pub(crate) fn new(pinner: Arc<dyn PagePinner>) -> Self {
        let regions = Vec::new();
        Self { pinner, regions }
    }

    /// Registers one more region.
    ///
    /// # Errors
    /// The refusal; those before it are kept.
    pub(crate) fn add(&mut self, region: PinRegion) -> Result<(), PinError> {
        self.pinner.register(region)?;
        self.regions.push(region);
        Ok(())
    }

    /// Takes back what was registered after the first `count`, the last first.
    pub(crate) fn truncate(&mut self, count: usize) {
        while self.regions.len() > count
            && let Some(region) = self.regions.pop()
        {
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

    /// Regions that are registered.
    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.truncate(0);
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

    fn region(address: usize) -> PinRegion {
        PinRegion { address, bytes: 1 }
    }

    #[test]
    fn a_refusal_keeps_the_earlier_regions_until_they_are_taken_back_in_reverse() {
        let recorder = Arc::new(Recorder {
            refused: Some(3),
            ..Recorder::default()
        });
        let mut pins = Pins::new(recorder.clone());
        for address in 0..3 {
            pins.add(region(address)).unwrap();
        }
        assert_eq!(pins.add(region(3)).unwrap_err().code, 2);
        assert_eq!(pins.len(), 3);
        pins.truncate(1);
        assert_eq!(pins.len(), 1);
        let calls = recorder.calls.lock().unwrap().clone();
        let all = [('r', 0), ('r', 1), ('r', 2), ('r', 3), ('u', 2), ('u', 1)];
        assert_eq!(calls, all);
    }

    #[test]
    fn dropping_takes_all_back_in_reverse() {
        let recorder = Arc::new(Recorder::default());
        let mut pins = Pins::new(recorder.clone());
        pins.add(region(0)).unwrap();
        pins.add(region(1)).unwrap();
        drop(pins);
        let calls = recorder.calls.lock().unwrap().clone();
        assert_eq!(calls, [('r', 0), ('r', 1), ('u', 1), ('u', 0)]);
    }
}
