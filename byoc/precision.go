// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"

	"github.com/collage-tvm/collage/relay"
)

// Precision is the type in which a backend computes the products and convolutions of a network of float32.
type Precision string

// The precisions. What users say of a whole network is settings.Config.Precision.
const (
	// F32 is the network's own type.
	F32 Precision = "f32"
	// BF16 has float32's range and eight bits of its mantissa; sums are float32.
	BF16 Precision = "bf16"
	// INT8 is bytes, with a scale for all that were rounded together; sums are exact.
	INT8 Precision = "int8"
)

// Precisions are all of them, each narrower than the one before it.
func Precisions() []Precision { return []Precision{F32, BF16, INT8} }

// Narrow is a backend that computes in a narrower type than the network's: quicker, and less exactly. What crosses its
// regions' borders stays as it was. It is offered where a Config's precision allows it, beside the backend that does
// the same in float32, and how far a network with such regions is off is measured as a whole.
type Narrow interface {
	// Precision is what it computes in.
	Precision() Precision
	// Wide is the name of the backend that does the same in the network's own type.
	Wide() string
}

// Rounding is a Narrow backend that rounds what some operators read to the steps of a scale which is known beforehand.
// The scales are found on inputs of the network's; the region's function has them as qnn.quantize and qnn.dequantize
// behind what is rounded, and all readers in the region read that.
type Rounding interface {
	// Rounded are the values, ascending, that a candidate of these nodes has rounded: tensors of float32 of fixed
	// shapes.
	Rounded(g *relay.Graph, nodes []relay.NodeID) []relay.NodeID
}

// GivesRounded is a Rounding backend some of whose kernels have bytes as results, too: what these give is rounded for all
// who read it, in the region and outside. Its candidates stand bare (Pattern.Bare).
type GivesRounded interface {
	// Given are those of Rounded, ascending, that a candidate of these nodes makes itself and gives rounded.
	Given(g *relay.Graph, nodes []relay.NodeID) []relay.NodeID
}

// GivenBy are the values that a backend gives rounded where it runs a candidate of these nodes (GivesRounded).
func GivenBy(b Backend, g *relay.Graph, nodes []relay.NodeID) []relay.NodeID {
	if r, ok := b.(GivesRounded); ok {
		return r.Given(g, nodes)
	}
	return nil
}

// RoundsWeights is a backend that has weights of float32 as bytes, rounded as rounding.Channels rounds them: what their
// products are off by in the mean may be taken off the biases behind them.
type RoundsWeights interface {
	// WeightsRounded are the operators among a candidate's nodes whose weights are rounded so, ascending.
	WeightsRounded(g *relay.Graph, nodes []relay.NodeID) []relay.NodeID
}

// WeightsRoundedBy are the operators whose weights a backend rounds in a candidate of these nodes (RoundsWeights).
func WeightsRoundedBy(b Backend, g *relay.Graph, nodes []relay.NodeID) []relay.NodeID {
	if r, ok := b.(RoundsWeights); ok {
		return r.WeightsRounded(g, nodes)
	}
	return nil
}

// RoundedBy are the values that a backend has rounded for a candidate of these nodes (Rounding).
func RoundedBy(b Backend, g *relay.Graph, nodes []relay.NodeID) []relay.NodeID {
	if r, ok := b.(Rounding); ok {
		return r.Rounded(g, nodes)
	}
	return nil
}

// PrecisionOf is what a backend computes in: F32 where it does not say.
func PrecisionOf(b Backend) Precision {
	if n, ok := b.(Narrow); ok {
		return n.Precision()
	}
	return F32
}

// WideOf is the name of the backend that computes in float32 what a backend computes narrowly; its own where it does
// not.
func WideOf(b Backend) string {
	if n, ok := b.(Narrow); ok {
		return n.Wide()
	}
	return b.Name()
}

// ProbeINT8 is ProbeBF16 for bytes.
func ProbeINT8(p Probe, wide string) Probe {
	return probeNarrow(p, wide, INT8, "neither avx512_vnni nor avx_vnni: products of bytes would be no faster than "+
		"those of float32")
}

// ProbeBF16 is the probe of a backend that computes in bfloat16 with the library of another one, wide, whose probe is
// p: it can be used where this processor gains by the type, and the environment does not forbid it.
func ProbeBF16(p Probe, wide string) Probe {
	return probeNarrow(p, wide, BF16, "neither avx512_bf16 nor amx_bf16: it would compute bfloat16 no faster than float32")
}

func probeNarrow(p Probe, wide string, precision Precision, lacks string) Probe {
	if !p.Usable || slices.Contains(NarrowTypes(), precision) {
		return p
	}
	p.Usable, p.Remedy = false, "use "+wide
	p.Reason = "this processor has " + lacks
	if name, value := capped(precision, os.Getenv); name != "" {
		p.Reason = fmt.Sprintf("%s=%s forbids the instructions for products in %s", name, value, precision)
	}
	return p
}

// NarrowTypes are the precisions for whose products this processor has instructions, as far as the environment does not
// forbid them.
func NarrowTypes() []Precision {
	has := map[Precision]bool{BF16: cpu.X86.HasAVX512BF16 || cpu.X86.HasAMXBF16,
		INT8: cpu.X86.HasAVX512VNNI || cpu.X86.HasAVXVNNI}
	return slices.DeleteFunc(Precisions(), func(p Precision) bool {
		name, _ := capped(p, os.Getenv)
		return !has[p] || name != ""
	})
}

// without are the values of the variables that cap instructions which leave out those of a precision: ours, then
// oneDNN's.
var without = map[Precision][]string{
	BF16: {"plain", "avx2", "avx512", "avx512_vnni", "sse41", "avx", "avx2_vnni", "avx2_vnni_2", "avx512_mic",
		"avx512_mic_4ops", "avx512_core", "avx512_core_vnni"},
	INT8: {"plain", "avx2", "avx512", "sse41", "avx", "avx512_mic", "avx512_mic_4ops", "avx512_core"},
}

// capped is which variable of the environment forbids the instructions of a precision, and its value; "" for none. The
// first that is set counts, as in the runtime.
func capped(precision Precision, getenv func(string) string) (name, value string) {
	for _, name := range []string{"COLLAGE_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"} {
		if value := getenv(name); slices.Contains(without[precision], strings.ToLower(value)) {
			return name, value
		} else if value != "" {
			return "", ""
		}
	}
	return "", ""
}
