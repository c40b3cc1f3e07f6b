// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/cmd/internal/compile"
)

// weightsFlag says how often the sizes of an open dimension come.
const weightsFlag = "--dynamic-weights"

// weigh gives the open dimensions that --dynamic-weights means their weights. given is "NAME:1=FILE", or "FILE" for all
// dimensions that have a domain, which then is the same for all.
func weigh(opened map[string]map[int64]*compile.Domain, given string) error {
	domains, path, err := weighed(opened, given)
	if err != nil {
		return err
	}
	weights, err := readWeights(path, domains[0])
	for _, domain := range domains {
		domain.Weights = weights
	}
	return err
}

// weighed are the domains that --dynamic-weights means, one at least, and the file.
func weighed(opened map[string]map[int64]*compile.Domain, given string) ([]*compile.Domain, string, error) {
	if parts := namedWeights.FindStringSubmatch(given); parts != nil {
		name, path := parts[1], parts[3]
		axis, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil || opened[name][axis] == nil {
			return nil, "", fmt.Errorf("%s: say between which sizes the dimension %s of %s may be: --dynamic %s:%s=1..512",
				weightsFlag, parts[2], name, name, parts[2])
		}
		return []*compile.Domain{opened[name][axis]}, path, nil
	}
	var domains []*compile.Domain
	for _, name := range slices.Sorted(maps.Keys(opened)) {
		for _, axis := range slices.Sorted(maps.Keys(opened[name])) {
			one := opened[name][axis]
			if one == nil {
				continue
			}
			if domains = append(domains, one); one.Least != domains[0].Least || one.Most != domains[0].Most {
				return nil, "", fmt.Errorf("%s %s: dimensions have other sizes than each other (--dynamic); say which one is "+
					"meant, as %s:%d=%s", weightsFlag, given, name, axis, given)
			}
		}
	}
	if domains == nil {
		return nil, "", fmt.Errorf("%s %s: no dimension has sizes between which it may be: --dynamic NAME:1=1..512",
			weightsFlag, given)
	}
	return domains, given, nil
}

// namedWeights is "NAME:1=FILE".
var namedWeights = regexp.MustCompile(`^(.+?):(\d+)=(.+)$`)

// readWeights reads how often sizes of a domain come: a line for each is "SIZE", which stands for one that came, or
// "SIZE HOW-OFTEN". What is behind # is not read, and so are empty lines. A size may have several lines.
func readWeights(path string, domain *compile.Domain) ([][2]float64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", weightsFlag, err)
	}
	defer file.Close()
	counted := map[int64]float64{}
	lines := bufio.NewScanner(file)
	number := 0
	for lines.Scan() {
		number++
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		size, often, err := readWeight(fields)
		if err == nil && (size < domain.Least || size > domain.Most) {
			err = fmt.Errorf("the size %d is not one of %d to %d (--dynamic)", size, domain.Least, domain.Most)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s:%d: %w", weightsFlag, path, number, err)
		}
		counted[size] += often
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %s:%d: %w", weightsFlag, path, number+1, err)
	}
	var weights [][2]float64
	for _, size := range slices.Sorted(maps.Keys(counted)) {
		if often := counted[size]; often > 0 {
			weights = append(weights, [2]float64{float64(size), often})
		}
	}
	if len(weights) == 0 {
		return nil, fmt.Errorf("%s: %s has no size that ever comes: a line for each is SIZE or SIZE HOW-OFTEN",
			weightsFlag, path)
	}
	return weights, nil
}

func readWeight(fields []string) (size int64, often float64, err error) {
	if size, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
		return 0, 0, fmt.Errorf("%q is no size (a whole number)", fields[0])
	}
	switch often = 1; len(fields) {
	case 1:
	case 2:
		if often, err = strconv.ParseFloat(fields[1], 64); err != nil || !(often >= 0 && often <= math.MaxFloat32) {
			return 0, 0, fmt.Errorf("%q is not how often a size comes (a number from 0 up)", fields[1])
		}
	default:
		return 0, 0, errors.New("a line is SIZE or SIZE HOW-OFTEN")
	}
	return size, often, nil
}
