// SPDX-License-Identifier: Apache-2.0

package region

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/relay/symbolic"
)

// sizedForm is the form of texts for all sizes; the runtime (byoc/runtime/dnnl_sized_text.h) reads no other.
const sizedForm = 1

// extraSamples are sizes at which a text for all sizes is held against what the engine is told there, beside those that
// it was made of, and beside the ends of the bounds.
const extraSamples = 4

// sized is what an engine that knows sizes is given for a region with open dimensions: what it is told depends on them
// only by numbers, which are polynomials of them and of quotients of them.
type sized struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Sizes says where each size is found: input, dimension.
	Sizes [][2]int `json:"sizes"`
	// Quotients are further sizes behind these, each of those before it.
	Quotients []sizedQuotient `json:"quotients,omitempty"`
	// Texts are one for all sizes, and before it others for those of which some are 1.
	Texts []sizedText `json:"texts"`
}

// sizedQuotient is a number of terms as sizedText's, over the sizes before it, divided by a number and rounded down.
type sizedQuotient struct {
	Of [][]int64 `json:"of"`
	By int64     `json:"by"`
}

// sizedText is the text where the sizes in Ones are 1, and no other is: Pieces with a number behind each but the last.
type sizedText struct {
	Ones   []int    `json:"ones"`
	Pieces []string `json:"pieces"`
	// Numbers are sums of terms: a factor, and how often it is multiplied by each size.
	Numbers [][][]int64 `json:"numbers"`
}

// emitSized writes a region with open dimensions for all their sizes. constants are those of fixed, which is the region
// at some sizes and refers to what p does.
func emitSized(p *Program, emit Emitter) (text []byte, fixed *Program, constants []ValueID, err error) {
	a, err := symbolic.AnalyseNamed(p.Graph)
	if err != nil {
		return nil, nil, nil, err
	}
	s := &sampler{p: p, emit: emit, analysis: a, dimensions: a.Open(), derived: a.Derived(), known: map[string]*sample{}}
	s.depends = s.dependences()
	out := sized{Format: "collage-sized", Version: sizedForm, Quotients: s.quotients()}
	if out.Sizes, err = s.places(); err != nil {
		return nil, nil, nil, err
	}
	apart, all := s.onesApart()
	for _, one := range apart {
		t, err := s.text(one)
		if err != nil {
			return nil, nil, nil, err
		}
		out.Texts = append(out.Texts, *t)
	}
	if out.Texts, err = s.unlikeLast(out.Texts, all); err != nil {
		return nil, nil, nil, err
	}
	text, err = json.Marshal(out)
	return text, s.first.program, s.first.constants, err
}

// sampler asks an engine's emitter what it is told at some sizes.
type sampler struct {
	p          *Program
	emit       Emitter
	analysis   *symbolic.Analysis
	dimensions []symbolic.Dimension
	derived    []symbolic.Derived
	// depends is, for each that is derived, the one dimension that it depends on; -1 for several, and for what no value
	// has as its size.
	depends []int
	known   map[string]*sample
	first   *sample
}

// sample is what the engine is told where dimensions have these sizes, in order; all has those that are derived behind
// them.
type sample struct {
	sizes, all []int64
	program    *Program
	constants  []ValueID
	pieces     []string
	numbers    []int64
}

// places finds for each open dimension where an input has it.
func (s *sampler) places() ([][2]int, error) {
	places := make([][2]int, len(s.dimensions))
	found := make([]bool, len(places))
	input := 0
	var leaf func(v *symbolic.Value)
	leaf = func(v *symbolic.Value) {
		if v.Fields != nil {
			for i := range v.Fields {
				leaf(&v.Fields[i])
			}
			return
		}
		for d, extent := range v.Shape {
			at := slices.IndexFunc(s.dimensions, func(known symbolic.Dimension) bool {
				return extent.Equal(symbolic.Symbol(known.Name, known.Least, known.Most))
			})
			if at >= 0 && !found[at] {
				places[at], found[at] = [2]int{input, d}, true
			}
		}
		input++
	}
	for _, param := range s.p.Graph.Params {
		v := s.analysis.Of(param)
		leaf(&v)
	}
	if at := slices.Index(found, false); at >= 0 {
		return nil, fmt.Errorf("no input has the size %s by itself", s.dimensions[at].Name)
	}
	return places, nil
}

// at asks the emitter.
func (s *sampler) at(sizes []int64) (*sample, error) {
	key := fmt.Sprint(sizes)
	if one := s.known[key]; one != nil {
		return one, nil
	}
	named := map[string]int64{}
	for i, d := range s.dimensions {
		named[d.Name] = sizes[i]
	}
	g, err := s.analysis.Fixed(named)
	if err != nil {
		return nil, err
	}
	p, err := FromGraph(g, s.p.Symbol)
	if err != nil {
		return nil, err
	}
	p.Function, p.Whole = s.p.Function, s.p
	text, constants, err := s.emit(p)
	if about := (*OpError)(nil); errors.As(err, &about) {
		return nil, &OpError{Op: about.Op, Err: fmt.Errorf("%w (where %s)", about.Err, s.describe(sizes))}
	} else if err != nil {
		return nil, err
	}
	one := &sample{sizes: sizes, all: slices.Clone(sizes), program: p, constants: constants}
	for i := range s.derived {
		size, err := s.derived[i].At(named)
		if err != nil {
			return nil, err
		}
		one.all = append(one.all, size)
	}
	one.pieces, one.numbers = cut(text)
	s.known[key] = one
	if s.first == nil {
		s.first = one
	}
	if !slices.EqualFunc(constants, s.first.constants, func(a, b ValueID) bool {
		return p.Values[a].Constant == s.first.program.Values[b].Constant &&
			slices.Equal(p.Values[a].added, s.first.program.Values[b].added)
	}) {
		return nil, fmt.Errorf("the engine is given other constants where %s than where %s", s.describe(sizes),
			s.describe(s.first.sizes))
	}
	return one, nil
}

func (s *sampler) describe(sizes []int64) string {
	text := ""
	for i, d := range s.dimensions {
		if i > 0 {
			text += ", "
		}
		text += d.Name + " is " + strconv.FormatInt(sizes[i], 10)
	}
	return text
}

// cut takes the numbers out of a text: whole ones, with what stands before and behind.
func cut(text []byte) (pieces []string, numbers []int64) {
	begin := 0
	digit := func(i int) bool { return i < len(text) && text[i] >= '0' && text[i] <= '9' }
	for i := 0; i < len(text); {
		if !digit(i) {
			i++
			continue
		}
		end := i
		for digit(end) {
			end++
		}
		// Digits of what is no whole number stay where they are.
		if n, err := strconv.ParseInt(string(text[i:end]), 10, 64); err == nil && (text[i] != '0' || end == i+1) {
			if n != 0 && i > begin && text[i-1] == '-' { // -0.5 begins with no whole number below 0
				i, n = i-1, -n
			}
			pieces, numbers = append(pieces, string(text[begin:i])), append(numbers, n)
			begin = end
		}
		i = end
	}
	return append(pieces, string(text[begin:])), numbers
}

// text is the one for all sizes within some spans.
func (s *sampler) text(within way) (*sizedText, error) {
	var free []int // dimensions that are not fixed
	for i, span := range within.spans {
		if span.least != span.most {
			free = append(free, i)
		}
	}
	monomials, products := monomialsOf(len(s.dimensions)+len(s.derived), free), s.products(free)
	more := extraSamples
	if len(s.derived) > 0 {
		more += remainders
	}
	var samples []*sample
	for number := range len(monomials) + more {
		at := s.sizes(within.spans, number)
		if slices.ContainsFunc(samples, func(one *sample) bool { return slices.Equal(one.sizes, at) }) {
			continue
		}
		one, err := s.at(at)
		if err != nil {
			return nil, err
		}
		if len(samples) > 0 && !slices.Equal(one.pieces, samples[0].pieces) {
			return nil, fmt.Errorf("what the engine is told where %s has another form than where %s", s.describe(at),
				s.describe(samples[0].sizes))
		}
		samples = append(samples, one)
	}
	out := &sizedText{Ones: within.ones}
	for k, number := range samples[0].numbers {
		out.Pieces = extended(out.Pieces, len(out.Numbers), samples[0].pieces[k])
		if !slices.ContainsFunc(samples, func(one *sample) bool { return one.numbers[k] != number }) {
			out.Pieces = extended(out.Pieces, len(out.Numbers), strconv.FormatInt(number, 10))
			continue
		}
		terms, found := fitProduct(samples, k, products)
		if !found {
			var err error
			if terms, err = fit(samples, k, monomials); err != nil {
				return nil, fmt.Errorf("a number that the engine is told, behind %q, is no polynomial of the sizes: %w",
					lastOf(samples[0].pieces[k]), err)
			}
		}
		out.Numbers = append(out.Numbers, terms)
	}
	out.Pieces = extended(out.Pieces, len(out.Numbers), samples[0].pieces[len(samples[0].numbers)])
	return out, nil
}

// extended has text behind the piece that stands behind so many numbers.
func extended(pieces []string, numbers int, text string) []string {
	if len(pieces) == numbers {
		return append(pieces, text)
	}
	pieces[numbers] += text
	return pieces
}

// sizes are those of the sample of a number: first the ends of the bounds, then primes.
func (s *sampler) sizes(spans []span, number int) []int64 {
	bounds := slices.Clone(s.dimensions)
	for i := range bounds {
		bounds[i].Least, bounds[i].Most = spans[i].least, spans[i].most
	}
	sampled := symbolic.Sample(bounds, number)
	sizes := make([]int64, len(bounds))
	for i, d := range bounds {
		switch {
		case number == 1:
			sizes[i] = d.Least
		case number == 2 && d.Most < mostTried:
			sizes[i] = d.Most
		default:
			sizes[i] = sampled[d.Name]
			if len(s.derived) > 0 {
				sizes[i] = shifted(sizes[i], int64(number*(2*i+1))%remainders, d.Least, d.Most)
			}
		}
	}
	return sizes
}

// mostTried is below which the greatest size is tried, too: engines refuse tensors that no memory holds.
const mostTried = 1 << 16

// unlikeLast leaves out texts that the last one, which is for all sizes, gives at their sizes, too. all says that there
// is one for all sizes that may be told apart.
func (s *sampler) unlikeLast(texts []sizedText, all bool) ([]sizedText, error) {
	last := &texts[len(texts)-1]
	kept := texts[:0:0]
	for i := range texts[:len(texts)-1] {
		same := len(last.Ones) == 0 // else all are apart
		for _, one := range s.known {
			if s.isOf(one, texts[i].Ones) && last.at(one.all) != texts[i].at(one.all) {
				same = false
			}
		}
		if !same {
			kept = append(kept, texts[i])
		}
	}
	if len(kept) > 0 && !all {
		return nil, fmt.Errorf("its open dimensions may be 1, which the engine tells apart, in more than %d ways", mostApart)
	}
	return append(kept, *last), nil
}

// isOf says that a sample is one of those of which ones, and no others that are told apart, are 1.
func (s *sampler) isOf(one *sample, ones []int) bool {
	for i, size := range one.all {
		if (i < len(s.dimensions) || s.depends[i-len(s.dimensions)] >= 0) && (size == 1) != slices.Contains(ones, i) {
			return false
		}
	}
	return true
}

// at is the text at sizes.
func (t *sizedText) at(sizes []int64) string {
	text := ""
	for i, piece := range t.Pieces {
		text += piece
		if i < len(t.Numbers) {
			text += strconv.FormatInt(polynomialAt(t.Numbers[i], sizes), 10)
		}
	}
	return text
}

// lastOf is the end of a piece of text, for an error that says where a number stands.
func lastOf(piece string) string {
	const most = 40
	if piece = strings.TrimSpace(piece); len(piece) > most {
		piece = piece[len(piece)-most:]
	}
	return piece
}
