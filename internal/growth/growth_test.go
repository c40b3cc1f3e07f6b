// SPDX-License-Identifier: Apache-2.0

package growth

import "testing"

func TestLinear(t *testing.T) {
	sum := 0
	Linear(t, 100_000, func(size int) func() {
		return func() {
			for i := range size {
				sum += i ^ sum
			}
		}
	})
}
