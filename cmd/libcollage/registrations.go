// SPDX-License-Identifier: Apache-2.0

package main

// registrations are what makes Collage known to TVM, in order.
var registrations = []func() error{}
