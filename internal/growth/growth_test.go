// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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

func TestWhatIsQuadraticIsNotLinear(t *testing.T) {
	sum := 0
	small, large := best(t, 500, func(size int) func() {
		return func() {
			for i := range size {
				for j := range size {
					sum += i ^ j ^ sum
				}
			}
		}
	})
	require.Greater(t, large, allowed*small)
}
