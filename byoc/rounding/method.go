// SPDX-License-Identifier: Apache-2.0

package rounding

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Method is how Steps are made of numbers that were seen: one of MethodNames, percentile with its share in percent
// behind a colon ("percentile:99.9").
type Method string

const (
	// MeanSquare is those by which numbers are off the least in the mean of squares.
	MeanSquare Method = "mse"
	// MinMax reaches all that was seen.
	MinMax Method = "min-max"
	// Percentile reaches a share of the numbers, as many being beyond at each end.
	Percentile Method = "percentile"
	// Entropy is those whose distribution diverges the least from the numbers' own.
	Entropy Method = "entropy"
)

// usualPercentile is the share, in percent, where none is said.
const usualPercentile = 99.99

// MethodNames are the methods, without their numbers.
func MethodNames() []string {
	return []string{string(MeanSquare), string(MinMax), string(Percentile), string(Entropy)}
}

// Methods are those that are tried where the choice is left to what is measured; of such as are equally good the first
// is taken.
func Methods() []Method { return []Method{MeanSquare, MinMax, Percentile, Entropy} }

// Validate says what is wrong with a method; nil for one of MethodNames with the number that it may have.
func (m Method) Validate() error {
	name, number, numbered := strings.Cut(string(m), ":")
	for _, known := range MethodNames() {
		switch {
		case name != known:
		case !numbered:
			return nil
		case Method(name) != Percentile:
			return fmt.Errorf("is %q; only percentile has a number", string(m))
		default:
			share, err := strconv.ParseFloat(number, 64)
			if err != nil || !(share > 50 && share <= 100) {
				return fmt.Errorf("is %q; a percentile is more than 50 and at most 100, such as percentile:99.9", string(m))
			}
			return nil
		}
	}
	return fmt.Errorf("is %q; it is %s", string(m), strings.Join(MethodNames(), ", "))
}

// percent is a percentile's share in percent.
func (m Method) percent() float64 {
	_, number, numbered := strings.Cut(string(m), ":")
	if share, err := strconv.ParseFloat(number, 64); numbered && err == nil {
		return share
	}
	return usualPercentile
}

// StepsBy are the steps that a method makes of what was seen. One that is none (Validate) is taken for MeanSquare.
func (s *Seen) StepsBy(m Method) Steps {
	switch name, _, _ := strings.Cut(string(m), ":"); Method(name) {
	case MinMax:
		return Reaching(s.Low, s.High)
	case Percentile:
		return Reaching(s.within(m.percent()))
	case Entropy:
		return Reaching(s.leastDivergent())
	}
	return s.Steps()
}

// within are the ends between which a share of the numbers lies, those that are 0 left out: as many are beyond each
// end. They are where parts of what is counted end.
func (s *Seen) within(percent float64) (low, high float64) {
	total := int64(0)
	for _, count := range s.Counts {
		total += count
	}
	mayBeyond := int64(math.Floor(float64(total) * (100 - percent) / 200))
	first, last := 0, len(s.Counts)
	for beyond := int64(0); first < last && beyond+s.Counts[first] <= mayBeyond; first++ {
		beyond += s.Counts[first]
	}
	for beyond := int64(0); last > first && beyond+s.Counts[last-1] <= mayBeyond; last-- {
		beyond += s.Counts[last-1]
	}
	return s.ends(first, last)
}

// ends are where parts begin and end, of which the last is left out; the ends of all are exactly what was seen.
func (s *Seen) ends(first, last int) (low, high float64) {
	low, high = s.Low, s.High
	width := (s.High - s.Low) / float64(len(s.Counts))
	if first > 0 {
		low = s.Low + float64(first)*width
	}
	if last < len(s.Counts) {
		high = s.Low + float64(last)*width
	}
	return low, high
}
