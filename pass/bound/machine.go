// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/pass/cost"
)

// Machine says how fast a machine is at best. The zero Machine is infinitely fast: all bounds are 0.
type Machine struct {
	// Flops are float32 operations a millisecond, on all threads together.
	Flops float64
	// Reads are how fast working sets are read, ascending by size.
	Reads []Read
}

// Read is one point of the curve that the caches make.
type Read struct {
	// Size of the working set in bytes; Speed in bytes a millisecond, on all threads together.
	Size, Speed float64
}

// Margins by which the calibration is distrusted: a neighbour may have held the machine back when it was made.
const (
	flopsMargin = 1.5
	readMargin  = 2.0
	// cachedShare: of a working set so many times as large as one that was calibrated, a good part may still be in the
	// cache that the smaller one fits into.
	cachedShare = 4.0
)

// smallest is the bound of what has no other, in milliseconds: nothing that runs takes no time.
const smallest = 1e-6

// Milliseconds is what some work takes at least on the machine.
func (m *Machine) Milliseconds(w Work) float64 {
	return m.roofline(w, flopsMargin, readMargin, cachedShare)
}

// Roofline is what some work takes at the speeds that were measured, which a good kernel comes near to: no bound.
func (m *Machine) Roofline(w Work) float64 { return m.roofline(w, 1, 1, 1) }

func (m *Machine) roofline(w Work, flopsMargin, readMargin, cachedShare float64) float64 {
	ms := smallest
	if m.Flops > 0 {
		ms = max(ms, w.Flops/(m.Flops*flopsMargin))
	}
	speed := 0.0
	for _, r := range m.Reads {
		if r.Size >= w.Bytes/cachedShare {
			speed = max(speed, r.Speed)
		}
	}
	if speed == 0 && len(m.Reads) > 0 { // larger than all that was calibrated
		speed = m.Reads[len(m.Reads)-1].Speed
	}
	if speed > 0 {
		ms = max(ms, w.Bytes/(speed*readMargin))
	}
	return ms
}

// A calibration is kept in the cost store, as costs of these structures on the backend "machine": what 10^9 operations,
// or reading 2^30 bytes of a working set of so many bytes, takes at best.
const (
	Backend     = "machine"
	flopsName   = "calibration/float32-gflop"
	readsPrefix = "calibration/read-gib-"
)

// Keys are those of the records that make a calibration, in a fixed order.
func Keys(env cost.Environment) []cost.Key {
	// Compilers and libraries have no part in it.
	env = cost.Environment{Target: "machine", Device: env.Device, TVM: "-", Threads: env.Threads}
	keys := []cost.Key{{Structure: flopsName, Backend: Backend, Environment: env}}
	for _, size := range Sizes {
		keys = append(keys, cost.Key{Structure: fmt.Sprintf("%s%d", readsPrefix, size), Backend: Backend,
			Environment: env})
	}
	return keys
}

// Sizes of the working sets that are calibrated, in bytes for all threads together: from what the first-level caches
// hold to what no cache does.
var Sizes = []int{1 << 15, 1 << 17, 1 << 19, 1 << 21, 1 << 23, 1 << 25, 1 << 27, 1 << 28}

// FromCosts is the machine that a calibration describes; costs in the order of Keys. Of several samples the fastest
// counts. An error means that a part is missing.
func FromCosts(keys []cost.Key, costs []cost.Cost) (*Machine, error) {
	m := &Machine{}
	for i, key := range keys {
		if !costs[i].Known() || slices.Min(costs[i].Samples) <= 0 {
			return nil, fmt.Errorf("bound: the calibration has no %s", key.Structure)
		}
		best := slices.Min(costs[i].Samples)
		if key.Structure == flopsName {
			m.Flops = 1e9 / best
			continue
		}
		size, err := strconv.ParseFloat(strings.TrimPrefix(key.Structure, readsPrefix), 64)
		if err != nil {
			return nil, fmt.Errorf("bound: %q is no part of a calibration", key.Structure)
		}
		m.Reads = append(m.Reads, Read{Size: size, Speed: math.Exp2(30) / best})
	}
	slices.SortFunc(m.Reads, func(a, b Read) int { return cmp.Compare(a.Size, b.Size) })
	return m, nil
}
