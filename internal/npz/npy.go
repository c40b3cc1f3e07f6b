// SPDX-License-Identifier: Apache-2.0

package npz

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// magic begins each .npy file; two bytes of version follow.
const magic = "\x93NUMPY"

// The header is a Python dictionary literal, always written by repr() with these three keys.
var (
	descrField   = regexp.MustCompile(`'descr'\s*:\s*'([^']*)'`)
	fortranField = regexp.MustCompile(`'fortran_order'\s*:\s*(True|False)`)
	shapeField   = regexp.MustCompile(`'shape'\s*:\s*\(([^()]*)\)`)
)

// dtypes are the element types that both NumPy and TVM have: NumPy's kind and size, TVM's name.
var dtypes = map[string]string{
	"b1": "bool",
	"i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
	"u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64",
	"f2": "float16", "f4": "float32", "f8": "float64",
}

// ItemSize is the size in bytes of an element of the type, and whether the type can stand in a file.
func ItemSize(dtype string) (int, bool) {
	for code, name := range dtypes {
		if name == dtype {
			return int(code[1] - '0'), true
		}
	}
	return 0, false
}

// readArray reads one .npy file of fileSize bytes.
func readArray(r io.Reader, name string, fileSize uint64) (Array, error) {
	header, headerSize, err := readHeader(r)
	if err != nil {
		return Array{}, err
	}
	descr, fortran, shape, err := parseHeader(header)
	if err != nil {
		return Array{}, err
	}
	if len(descr) < 2 {
		return Array{}, fmt.Errorf("element type %q is not one that a model can take", descr)
	}
	order, code := descr[0], descr[1:]
	dtype, known := dtypes[code]
	if !known || !strings.ContainsRune("<>|=", rune(order)) {
		return Array{}, fmt.Errorf("element type %q is not one that a model can take (convert it with .astype)", descr)
	}
	size := int64(code[1] - '0')

	// The size that the header promises is held against the archive's own.
	bytes := size
	for _, d := range shape {
		if d != 0 && bytes > math.MaxInt64/d {
			return Array{}, fmt.Errorf("shape %v is too large", shape)
		}
		bytes *= d
	}
	if uint64(bytes) != fileSize-uint64(headerSize) {
		return Array{}, fmt.Errorf("shape %v of %s needs %d bytes, the file has %d", shape, dtype, bytes,
			int64(fileSize)-int64(headerSize))
	}
	data, err := readData(r, bytes)
	if err != nil {
		return Array{}, fmt.Errorf("reading %d bytes of data: %w", bytes, err)
	}
	// The archive's checksum is verified only at its end.
	if _, err := r.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
		return Array{}, err
	}
	if order == '>' && size > 1 {
		swapBytes(data, int(size))
	}
	if fortran && len(shape) > 1 {
		data = toRowMajor(data, shape, int(size))
	}
	return Array{Name: name, DType: dtype, Shape: shape, Data: data}, nil
}

// readStep is how much is allocated before there is anything to fill it with.
const readStep = 16 << 20

// readData reads size bytes. Both the header and the archive can promise more than is there, so memory grows with what
// comes.
func readData(r io.Reader, size int64) ([]byte, error) {
	data := make([]byte, min(size, readStep))
	for filled := int64(0); ; {
		n, err := io.ReadFull(r, data[filled:])
		if filled += int64(n); err != nil || filled == size {
			return data, err
		}
		grown := make([]byte, min(size, 2*filled))
		copy(grown, data)
		data = grown
	}
}

// readHeader gives the header's text and the size of everything before the data.
func readHeader(r io.Reader) (string, int, error) {
	prefix := make([]byte, len(magic)+2)
	if _, err := io.ReadFull(r, prefix); err != nil || string(prefix[:len(magic)]) != magic {
		return "", 0, errors.New("not in NumPy's array format")
	}
	var length, lengthSize int
	switch major := prefix[len(magic)]; major {
	case 1:
		var n uint16
		if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
			return "", 0, errors.New("the header is cut short")
		}
		length, lengthSize = int(n), 2
	case 2, 3:
		var n uint32
		if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
			return "", 0, errors.New("the header is cut short")
		}
		// NumPy itself refuses longer headers unless told otherwise.
		if n > 1<<16 {
			return "", 0, fmt.Errorf("a header of %d bytes is not one of a plain array", n)
		}
		length, lengthSize = int(n), 4
	default:
		return "", 0, fmt.Errorf("version %d of NumPy's array format is not known", major)
	}
	header := make([]byte, length)
	if _, err := io.ReadFull(r, header); err != nil {
		return "", 0, errors.New("the header is cut short")
	}
	return string(header), len(prefix) + lengthSize + length, nil
}

func parseHeader(header string) (descr string, fortran bool, shape []int64, err error) {
	d := descrField.FindStringSubmatch(header)
	f := fortranField.FindStringSubmatch(header)
	s := shapeField.FindStringSubmatch(header)
	if f == nil || s == nil {
		return "", false, nil, fmt.Errorf("header %q is not one of NumPy's", strings.TrimSpace(header))
	}
	if d == nil {
		return "", false, nil, errors.New("records are not arrays that a model can take")
	}
	for field := range strings.SplitSeq(s[1], ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil || n < 0 {
			return "", false, nil, fmt.Errorf("shape (%s) is not one of an array", s[1])
		}
		shape = append(shape, n)
	}
	return d[1], f[1] == "True", shape, nil
}

// writeArray writes one .npy file, version 1.0.
func writeArray(w io.Writer, a *Array) error {
	size, known := ItemSize(a.DType)
	if !known {
		return fmt.Errorf("NumPy has no element type %s", a.DType)
	}
	if want := a.Elements() * int64(size); want != int64(len(a.Data)) {
		return fmt.Errorf("shape %v of %s needs %d bytes, there are %d", a.Shape, a.DType, want, len(a.Data))
	}
	var code string
	for c, name := range dtypes {
		if name == a.DType {
			code = c
		}
	}
	order := "<"
	if size == 1 {
		order = "|"
	}
	dims := make([]string, len(a.Shape))
	for i, d := range a.Shape {
		dims[i] = strconv.FormatInt(d, 10)
	}
	tuple := strings.Join(dims, ", ")
	if len(dims) == 1 {
		tuple += ","
	}
	header := fmt.Sprintf("{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }", order, code, tuple)
	// The data begins at a multiple of 64 bytes, and a line break ends the header.
	before := len(magic) + 2 + 2
	header += strings.Repeat(" ", 63-(before+len(header))%64) + "\n"

	prefix := append([]byte(magic), 1, 0)
	prefix = binary.LittleEndian.AppendUint16(prefix, uint16(len(header)))
	if _, err := w.Write(append(prefix, header...)); err != nil {
		return err
	}
	_, err := w.Write(a.Data)
	return err
}

func swapBytes(data []byte, size int) {
	for i := 0; i+size <= len(data); i += size {
		slices.Reverse(data[i : i+size])
	}
}

// toRowMajor reorders column-major data.
func toRowMajor(data []byte, shape []int64, size int) []byte {
	out := make([]byte, 0, len(data))
	strides := make([]int64, len(shape))
	stride := int64(size)
	for i, d := range shape {
		strides[i] = stride
		stride *= d
	}
	index := make([]int64, len(shape))
	offset := int64(0)
	for len(out) < len(data) {
		out = append(out, data[offset:offset+int64(size)]...)
		for axis := len(shape) - 1; axis >= 0; axis-- {
			index[axis]++
			offset += strides[axis]
			if index[axis] < shape[axis] {
				break
			}
			offset -= strides[axis] * shape[axis]
			index[axis] = 0
		}
	}
	return out
}
