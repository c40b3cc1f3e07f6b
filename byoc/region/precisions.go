// SPDX-License-Identifier: Apache-2.0

package region

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
)

// PrecisionsAttr is the attribute of a region's function that says in what each of its groups (Groups) is computed, in
// order, as words. Without it all are computed in the network's own type.
const PrecisionsAttr = "Precisions"

// Precisions says of each of Ops in what it is to be computed. The error says what is wrong with the attribute.
func (p *Program) Precisions() ([]byoc.Precision, error) {
	names, of := p.Groups()
	said := make([]byoc.Precision, len(names))
	for i := range said {
		said[i] = byoc.F32
	}
	if text := p.Graph.Attrs[PrecisionsAttr]; text != "" {
		words := strings.Fields(text)
		if len(words) != len(names) {
			return nil, fmt.Errorf("ValueError: region %s: %s says %d precisions of %d groups", p.Symbol, PrecisionsAttr,
				len(words), len(names))
		}
		for i, word := range words {
			if said[i] = byoc.Precision(word); !slices.Contains(byoc.Precisions(), said[i]) {
				return nil, fmt.Errorf("ValueError: region %s: %s has %q, which is no precision", p.Symbol, PrecisionsAttr, word)
			}
		}
	}
	each := make([]byoc.Precision, len(p.Ops))
	for i, group := range of {
		each[i] = said[group]
	}
	return each, nil
}
