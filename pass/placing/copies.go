// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"fmt"
	"time"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/bound"
	"github.com/collage-tvm/collage/pass/cost"
)

// copySizes are the sizes of the copies that are measured, in bytes: that of a value that is all latency, to one that is
// larger than caches. At half as many points, what lies between them is off by the bend that a cache makes; more take
// longer than they tell.
var copySizes = []int64{1 << 12, 1 << 16, 1 << 20, 1 << 24}

// measureCopies gives the backends of other devices what copies to these and from there take, from the store, or else
// measured here (a tenth of a second) and kept there, or as they are declared. Where costs are given, these are all that
// counts. All backends of a device are told the same.
func (s *Module) measureCopies() error {
	known := map[string]*byoc.CopyCosts{}
	for _, b := range s.Backends {
		remote, ok := b.(byoc.Remote)
		if !ok {
			continue
		}
		if s.Config.Estimator != nil {
			remote.Know(nil)
			continue
		}
		if d := byoc.DeclarationOf(b); d != nil && d.Copies != nil {
			remote.Know(&d.Copies)
			continue
		}
		device := remote.Device()
		if known[device] == nil {
			costs, err := s.copyCosts(remote)
			if err != nil {
				return fmt.Errorf("measuring what copies to the device %s take: %w", device, err)
			}
			known[device] = &costs
		}
		remote.Know(known[device])
	}
	return nil
}

// copyCosts are a device's.
func (s *Module) copyCosts(remote byoc.Remote) (byoc.CopyCosts, error) {
	path, err := cost.StorePath(s.Config.Store)
	if err != nil {
		return nil, err
	}
	store, err := cost.OpenStore(path)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	// Compilers and libraries have no part in it: it is the device's and its driver's.
	env := cost.Environment{Target: bound.Backend, Device: s.Env.Device, TVM: "-", Threads: s.Env.Threads}
	env.Library = remote.Hardware()
	var costs byoc.CopyCosts
	for _, bytes := range copySizes {
		key := func(direction string) cost.Key {
			return cost.Key{Structure: fmt.Sprintf("copy/%s-%d", direction, bytes), Backend: remote.Device(), Environment: env}
		}
		to, known := store.Lookup(key("to"))
		from, both := store.Lookup(key("from"))
		if !known || !both || !to.Known() || !from.Known() {
			toSamples, fromSamples, err := remote.MeasureCopies(bytes)
			if err != nil {
				return nil, err
			}
			for direction, samples := range map[string][]float64{"to": toSamples, "from": fromSamples} {
				c := cost.Cost{Samples: samples, Origin: cost.Measured, Taken: time.Now()}
				if err := store.Put(key(direction), c); err != nil {
					return nil, err
				}
			}
			// With the digits that the next run will read.
			to, _ = store.Lookup(key("to"))
			from, _ = store.Lookup(key("from"))
		}
		costs = append(costs, byoc.CopyPoint{Bytes: bytes, To: to.Estimate(), From: from.Estimate()})
	}
	return costs, nil
}
