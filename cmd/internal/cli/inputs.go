// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// inputFlag is a flag that says something of inputs, one at a time: "NAME:1,3,224,224".
type inputFlag[T any] struct {
	// name is the flag's, gives what it gives of an input, and example what one writes.
	name, gives, example string
	// read reads one of the numbers; what says what it must be.
	read func(field string) (T, bool)
	what string
}

var inputShape = inputFlag[int64]{"--input-shape", "shape", "NAME:1,3,224,224", func(field string) (int64, bool) {
	n, err := strconv.ParseInt(field, 10, 64)
	// How many tensors a sequence has may be 0.
	return n, err == nil && n >= 0
}, "a size (a whole number)"}

var inputValue = inputFlag[float64]{"--input-value", "value", "NAME:2,2", func(field string) (float64, bool) {
	x, err := strconv.ParseFloat(field, 64)
	return x, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
}, "a number"}

var openDimensions = inputFlag[int64]{"--dynamic", "open dimensions", "NAME:0 or NAME:0,1", func(field string) (int64,
	bool) {
	n, err := strconv.ParseInt(field, 10, 32)
	return n, err == nil && n >= 0
}, "a dimension (a whole number from 0 up)"}

// parse reads all that was given, by the inputs' names, which may hold colons (TensorFlow's do).
func (f *inputFlag[T]) parse(texts []string) (map[string][]T, error) {
	inputs := map[string][]T{}
	for _, text := range texts {
		i := strings.LastIndexByte(text, ':')
		if i <= 0 {
			return nil, fmt.Errorf("%s %s: give it as %s", f.name, quoteIfNeeded(text), f.example)
		}
		name, list := text[:i], strings.Trim(text[i+1:], "[]() ")
		if _, twice := inputs[name]; twice {
			return nil, fmt.Errorf("%s gives the %s of %s twice", f.name, f.gives, name)
		}
		numbers := []T{}
		for field := range strings.SplitSeq(list, ",") {
			if field = strings.TrimSpace(field); field == "" && list == "" {
				continue
			}
			number, ok := f.read(field)
			if !ok {
				return nil, fmt.Errorf("%s %s: %q is not %s", f.name, text, field, f.what)
			}
			numbers = append(numbers, number)
		}
		inputs[name] = numbers
	}
	return inputs, nil
}
