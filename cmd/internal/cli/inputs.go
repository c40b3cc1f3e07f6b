// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/cmd/internal/compile"
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

// openDimension is a dimension that stays open, and between which sizes it may be, both included; nil for any.
type openDimension struct {
	axis   int64
	domain *compile.Domain
}

var openDimensions = inputFlag[openDimension]{"--dynamic", "open dimensions", "NAME:0, NAME:0,1 or NAME:1=1..512",
	func(field string) (openDimension, bool) {
		number, sizes, bounded := strings.Cut(field, "=")
		axis, err := strconv.ParseInt(strings.TrimSpace(number), 10, 32)
		if err != nil || axis < 0 || !bounded {
			return openDimension{axis: axis}, err == nil && axis >= 0
		}
		first, last, ok := strings.Cut(sizes, "..")
		least, err := strconv.ParseInt(strings.TrimSpace(first), 10, 64)
		most, err2 := strconv.ParseInt(strings.TrimSpace(last), 10, 64)
		domain := &compile.Domain{Least: least, Most: most}
		return openDimension{axis, domain}, ok && err == nil && err2 == nil && 1 <= least && least <= most
	}, "a dimension (a whole number from 0 up, with =1..512 behind it where its sizes are known)"}

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

// open are the dimensions that --dynamic leaves open, by inputs and axes.
func open(given map[string][]openDimension) (map[string]map[int64]*compile.Domain, error) {
	left := map[string]map[int64]*compile.Domain{}
	for name, dimensions := range given {
		if len(dimensions) == 0 {
			return nil, fmt.Errorf("--dynamic %s: names no dimension: give it as %s", name, openDimensions.example)
		}
		left[name] = map[int64]*compile.Domain{}
		for _, d := range dimensions {
			if _, twice := left[name][d.axis]; twice {
				return nil, fmt.Errorf("--dynamic %s names the dimension %d twice", name, d.axis)
			}
			left[name][d.axis] = d.domain
		}
	}
	return left, nil
}
