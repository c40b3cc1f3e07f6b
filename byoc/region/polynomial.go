// SPDX-License-Identifier: Apache-2.0

package region

import (
	"fmt"
	"math/big"
	"slices"
)

// What numbers a text for all sizes may have: strides and counts are products of a tensor's dimensions, and sums of such.
const (
	mostDegree   = 3
	mostExponent = 2
)

// monomialsOf are the products of sizes that numbers are made of: by size, how often it is a factor. Those that are not
// free are none.
func monomialsOf(sizes int, free []int) [][]int64 {
	all := [][]int64{make([]int64, sizes)}
	for _, i := range free {
		for _, one := range slices.Clone(all) {
			for exponent := int64(1); exponent <= mostExponent; exponent++ {
				more := slices.Clone(one)
				more[i] = exponent
				if degree(more) <= mostDegree {
					all = append(all, more)
				}
			}
		}
	}
	return all
}

func degree(monomial []int64) (sum int64) {
	for _, exponent := range monomial {
		sum += exponent
	}
	return sum
}

// fit is the polynomial of the sizes that the k-th number of each sample is: terms with a whole factor each, and the
// exponents behind it. Gauss's elimination, exactly; where the samples, which then are all sizes there may be, leave some
// factors free, these are 0.
func fit(samples []*sample, k int, monomials [][]int64) ([][]int64, error) {
	rows := make([][]*big.Rat, len(samples))
	for i, one := range samples {
		row := make([]*big.Rat, len(monomials)+1)
		for m, monomial := range monomials {
			row[m] = new(big.Rat).SetInt64(productAt(monomial, one.all))
		}
		row[len(monomials)] = new(big.Rat).SetInt64(one.numbers[k])
		rows[i] = row
	}
	pivots := make([]int, 0, len(monomials)) // by row, its column
	for column := range monomials {
		at := len(pivots)
		from := slices.IndexFunc(rows[at:], func(row []*big.Rat) bool { return row[column].Sign() != 0 })
		if from < 0 {
			continue
		}
		rows[at], rows[at+from] = rows[at+from], rows[at]
		for i, row := range rows {
			if i == at || row[column].Sign() == 0 {
				continue
			}
			by := new(big.Rat).Quo(row[column], rows[at][column])
			for c := column; c < len(row); c++ {
				row[c] = new(big.Rat).Sub(row[c], new(big.Rat).Mul(by, rows[at][c]))
			}
		}
		if pivots = append(pivots, column); len(pivots) == len(rows) {
			break
		}
	}
	var terms [][]int64
	for i, row := range rows {
		right := row[len(monomials)]
		switch {
		case i >= len(pivots) && right.Sign() != 0:
			return nil, fmt.Errorf("%d samples do not agree", len(samples))
		case i >= len(pivots):
			continue
		}
		factor := new(big.Rat).Quo(right, row[pivots[i]])
		if !factor.IsInt() || !factor.Num().IsInt64() {
			return nil, fmt.Errorf("it has the factor %s", factor.RatString())
		}
		if factor.Sign() != 0 {
			terms = append(terms, append([]int64{factor.Num().Int64()}, monomials[pivots[i]]...))
		}
	}
	return terms, nil
}

// polynomialAt is the number that terms are at sizes.
func polynomialAt(terms [][]int64, sizes []int64) int64 {
	sum := int64(0)
	for _, term := range terms {
		sum += term[0] * productAt(term[1:], sizes)
	}
	return sum
}

// productAt is the product of sizes, each as often as it is a factor.
func productAt(monomial, sizes []int64) int64 {
	product := int64(1)
	for i, exponent := range monomial {
		for range exponent {
			product *= sizes[i]
		}
	}
	return product
}
