// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"encoding/json"
	"fmt"

	"github.com/collage-tvm/collage/relay"
)

// SizesAttr is the attribute of a function that says what is known of the open dimensions of its parameters: Inputs, as
// JSON.
const SizesAttr = "collage.sizes"

// Text is what SizesAttr says.
func (i Inputs) Text() string {
	text, err := json.Marshal(i)
	if err != nil {
		panic(err) // names and numbers
	}
	return string(text)
}

// InputsOf is what a function's SizesAttr says; nil where it has none.
func InputsOf(g *relay.Graph) (Inputs, error) {
	text := g.Attrs[SizesAttr]
	if text == "" {
		return nil, nil
	}
	var inputs Inputs
	if err := json.Unmarshal([]byte(text), &inputs); err != nil {
		return nil, fmt.Errorf("the attribute %s of function %s: %w", SizesAttr, g.Name, err)
	}
	return inputs, nil
}

// AnalyseNamed is Analyse by what the function itself says of its parameters (SizesAttr).
func AnalyseNamed(g *relay.Graph) (*Analysis, error) {
	inputs, err := InputsOf(g)
	if err != nil {
		return nil, err
	}
	return Analyse(g, inputs)
}

// primes are sizes of which no product is another one's, and that are larger than any window: what holds for them holds
// for sizes in general.
var primes = []int64{61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163,
	167, 173, 179, 181, 191, 193, 197, 199, 211}

// Sample gives each of some dimensions a size within its bounds, other ones for each of the numbers 0, 1, ...: primes, as
// far as the bounds allow.
func Sample(dimensions []Dimension, number int) map[string]int64 {
	sizes := make(map[string]int64, len(dimensions))
	for i, d := range dimensions {
		// Behind the last prime they begin again, as far further on as that is.
		size := primes[(i+number*7)%len(primes)] + int64(number/len(primes))*primes[len(primes)-1]
		least, most := max(d.Least, 1), d.Most
		if most == 0 {
			most = Unbounded
		}
		switch {
		case size >= least && size <= most:
		case most-least < 1:
			size = most
		case size < least:
			size = min(most, least+1+int64(i+number)%7)
		default:
			size = least + (size+int64(number))%(most-least+1)
		}
		sizes[d.Name] = size
	}
	return sizes
}

// Least is the least size of each of some dimensions.
func Least(dimensions []Dimension) map[string]int64 {
	sizes := make(map[string]int64, len(dimensions))
	for _, d := range dimensions {
		sizes[d.Name] = max(d.Least, 1)
	}
	return sizes
}
