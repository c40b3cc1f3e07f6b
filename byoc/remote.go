// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"slices"
	"sync/atomic"

	"github.com/collage-tvm/collage/relay"
)

// Host is the device of backends that are not Remote.
const Host = "cpu"

// Remote is a backend whose regions run on another device than the processor, with memory of its own. What a region
// reads is copied there and what others read of it is copied back, in each call; its weights are there already.
type Remote interface {
	// Device is the kind of device, as TVM calls it: "opencl", "cuda".
	Device() string
	// Hardware is what its driver calls the device, and the driver's version; "" where that is not known. It is part of
	// the key of costs. The backend must have been installed.
	Hardware() string
	// Memory is the device's, in bytes; 0 where that is not known. The backend must have been installed.
	Memory() int64
	// MeasureCopies gives what copying so many bytes takes, in milliseconds, several times each way. The backend must
	// have been installed; the error says what is wrong with the device.
	MeasureCopies(bytes int64) (to, from []float64, err error)
	// Know gives the backend what copies take; nil for nothing. What it says of its borders (Borderer) is that.
	Know(c *CopyCosts)
}

// DeviceOf is the kind of device that a backend's regions run on.
func DeviceOf(b Backend) string {
	if r, ok := b.(Remote); ok {
		return r.Device()
	}
	return Host
}

// CopyPoint is what copying so many bytes takes, in milliseconds, to a device and from there.
type CopyPoint struct {
	Bytes    int64
	To, From float64
}

// CopyCosts are what copies take, by their size: straight lines between the points that were measured, ascending.
// Smaller ones take what the smallest takes, which is the latency, and larger ones go on as the last line does, which is
// the bandwidth.
type CopyCosts []CopyPoint

// Of is what copying so many bytes takes. Without points nothing takes any time.
func (c CopyCosts) Of(bytes int64) (to, from float64) {
	switch {
	case len(c) == 0:
		return 0, 0
	case len(c) == 1 || bytes <= c[0].Bytes:
		return c[0].To, c[0].From
	}
	above, _ := slices.BinarySearchFunc(c, bytes, func(p CopyPoint, bytes int64) int { return int(p.Bytes - bytes) })
	above = min(max(above, 1), len(c)-1)
	low, high := c[above-1], c[above]
	share := float64(bytes-low.Bytes) / float64(high.Bytes-low.Bytes)
	// Noise may have the larger one take less.
	return low.To + share*max(0, high.To-low.To), low.From + share*max(0, high.From-low.From)
}

// KnownCopies is the part of a Remote that keeps what copies take, to be embedded.
type KnownCopies struct{ costs atomic.Pointer[CopyCosts] }

// Know implements Remote.
func (k *KnownCopies) Know(c *CopyCosts) { k.costs.Store(c) }

// BorderCost implements Borderer: what copies take, once that is known.
func (k *KnownCopies) BorderCost() BorderCost {
	known := k.costs.Load()
	if known == nil {
		return nil
	}
	return func(t *relay.Type) (in, out float64) {
		bytes, _ := t.NumBytes()
		return known.Of(bytes)
	}
}
