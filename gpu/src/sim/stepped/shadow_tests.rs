// SPDX-License-Identifier: Apache-2.0

use super::*;
use proptest::prelude::*;
