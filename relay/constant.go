// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
)

// Digest returns the SHA-256 of a constant's data in hexadecimal. The data of a large constant is read the first
// time it is asked for, which needs the TVM that the graph was read from.
func (g *Graph) Digest(id NodeID) (string, error) {
	c := g.Nodes[id].Constant
	if c == nil {
		return "", fmt.Errorf("relay: %s: node %%%d is a %s, not a constant", g.Name, id, g.Nodes[id].Kind)
	}
	if c.Digest != "" {
		return c.Digest, nil
	}
	g.derived.digestMu.Lock()
	defer g.derived.digestMu.Unlock()
	if d, ok := g.derived.digests[id]; ok {
		return d, nil
	}
	data, err := g.constantData(id)
	if err != nil {
		return "", fmt.Errorf("relay: %s: reading constant %%%d: %w", g.Name, id, err)
	}
	sum := sha256.Sum256(data)
	if g.derived.digests == nil {
		g.derived.digests = map[NodeID]string{}
	}
	d := hex.EncodeToString(sum[:])
	g.derived.digests[id] = d
	return d, nil
}

// Elements is the number of elements of a known shape.
func Elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// scalarOf reads the one element of a tensor from its bytes (little-endian); NaN for other dtypes.
func scalarOf(dtype string, data []byte) float64 {
	u := func(n int) (x uint64) {
		for i := n - 1; i >= 0; i-- {
			x = x<<8 | uint64(data[i])
		}
		return x
	}
	bits := int(DTypeBits(dtype))
	if bits == 0 || bits > 64 || len(data)*8 != (bits+7)/8*8 {
		return math.NaN()
	}
	raw := u(len(data))
	switch {
	case dtype == "float32":
		return float64(math.Float32frombits(uint32(raw)))
	case dtype == "float64":
		return math.Float64frombits(raw)
	case dtype == "bfloat16":
		return float64(math.Float32frombits(uint32(raw) << 16))
	case dtype == "float16":
		return halfToFloat(uint16(raw))
	case strings.HasPrefix(dtype, "int"):
		shift := 64 - len(data)*8
		return float64(int64(raw<<shift) >> shift)
	case strings.HasPrefix(dtype, "uint"), dtype == "bool":
		return float64(raw)
	}
	return math.NaN()
}

func halfToFloat(h uint16) float64 {
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	exp, frac := int(h>>10&31), float64(h&1023)
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}
