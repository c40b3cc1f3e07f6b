// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
)

// identifier is what Python takes as a name.
var identifier = regexp.MustCompile(`^[\p{L}_][\p{L}\p{N}_]*$`)

// OwnMeasure is the measure of the user's own; nil where errors are taken in one of cost.Measures. The error says what
// is wrong with it, as far as that can be told without Python.
func (p *Precision) OwnMeasure() (*measure.OwnMeasure, error) {
	limit := p.Limit()
	file, function, own := cost.OwnMeasure(limit.Measure)
	if !own {
		if !slices.Contains(cost.Measures(), limit.Measure) {
			return nil, fmt.Errorf("is %q; it is %s, or FILE.py:FUNCTION", p.Measure, oneOf(cost.Measures()))
		}
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot be used: %w", err)
	}
	if !identifier.MatchString(function) ||
		!regexp.MustCompile(`(?m)^def\s+`+function+`\s*\(`).Match(text) {
		return nil, fmt.Errorf("is %q, but %s has no function of that name at its top (def %s(ours, right): ...)", p.Measure,
			file, function)
	}
	digest := sha256.Sum256(text)
	return &measure.OwnMeasure{Name: limit.Measure, File: file, Function: function,
		Digest: hex.EncodeToString(digest[:])[:12]}, nil
}
