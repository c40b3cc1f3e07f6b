// SPDX-License-Identifier: Apache-2.0
//
// Reading runtime.String, runtime.Array, ir.IntImm and ir.FloatImm in place. A packed call for each shape
// dimension of each node would cost more than the rest of reading a module. The layouts are those of TVM's
// runtime headers; each is tried on a known object at load, and where it does not hold, Go takes the packed
// functions.
#include <limits.h>
#include <string.h>

#include "shim.h"

#define OBJECT_HEADER 16  // type index, reference count, deleter

typedef struct {
  char header[OBJECT_HEADER];
  const char* data;
  uint64_t size;
} string_object;

typedef struct {
  char header[OBJECT_HEADER];
  int64_t size;
  int64_t capacity;
  void* items[];
} array_object;

static unsigned array_type = UINT_MAX, int_type = UINT_MAX, box_int_type = UINT_MAX, float_type = UINT_MAX;
static int string_ok, array_ok;
static int int_offset, float_offset;  // of the value; 0: not known

static unsigned type_of(void* object) {
  unsigned index = UINT_MAX;
  collage_tvm.ObjectGetTypeIndex(object, &index);
  return index;
}

// Where the eight bytes of magic lie in the first 40 of object; 0: nowhere.
static int find(void* object, const void* magic) {
  for (int at = OBJECT_HEADER; at <= 32; at += 8) {
    if (!memcmp((char*)object + at, magic, 8)) return at;
  }
  return 0;
}

// Makes runtime.Array("collage", ir.IntImm("int64", magic), ir.FloatImm("float64", magic)) and looks where
// things lie. int_fn and float_fn are NULL in libtvm_runtime.
int collage_probe_layouts(void* array_fn, void* int_fn, void* float_fn, collage_frame* f) {
  static const char text[] = "collage";
  const int64_t int_magic = 0x1122334455667788;
  const double float_magic = 1234567.890625;
  TVMValue items[3], args[3];
  int codes[3], arg_codes[3];
  void* made[2] = {NULL, NULL};
  int n = 0;

  items[n].v_str = text;
  codes[n++] = kTVMStr;
  if (int_fn && float_fn) {
    args[0].v_str = "int64";
    arg_codes[0] = kTVMStr;
    args[1].v_int64 = int_magic;
    arg_codes[1] = kTVMArgInt;
    args[2].v_handle = NULL;  // span
    arg_codes[2] = kTVMNullptr;
    if (collage_tvm.FuncCall(int_fn, args, arg_codes, 3, &f->ret, &f->ret_code) != 0) return collage_fail(f);
    items[n].v_handle = made[0] = f->ret.v_handle;
    codes[n++] = kTVMObjectHandle;
    args[0].v_str = "float64";
    args[1].v_float64 = float_magic;
    arg_codes[1] = kTVMArgFloat;
    if (collage_tvm.FuncCall(float_fn, args, arg_codes, 3, &f->ret, &f->ret_code) != 0) {
      collage_tvm.ObjectFree(made[0]);
      return collage_fail(f);
    }
    items[n].v_handle = made[1] = f->ret.v_handle;
    codes[n++] = kTVMObjectHandle;
    // Object header, span, then for an expression dtype and value; every TVM's IntImm and FloatImm are at
    // least 40 bytes long.
    int_offset = find(made[0], &int_magic);
    float_offset = find(made[1], &float_magic);
    if (int_offset) int_type = type_of(made[0]);
    if (float_offset) float_type = type_of(made[1]);
  }
  int rc = collage_tvm.FuncCall(array_fn, items, codes, n, &f->ret, &f->ret_code);
  if (rc == 0) {
    array_object* a = f->ret.v_handle;
    array_ok =
        a->size == n && a->capacity >= n && (n == 1 || (a->items[1] == made[0] && a->items[2] == made[1]));
    if (array_ok) {
      array_type = type_of(a);
      string_object* s = a->items[0];
      string_ok = type_of(s) == collage_tvm.string_type && s->size == sizeof text - 1 &&
                  !memcmp(s->data, text, sizeof text - 1);
    }
    collage_tvm.ObjectFree(a);
  } else {
    collage_fail(f);
  }
  if (made[0]) collage_tvm.ObjectFree(made[0]);
  if (made[1]) collage_tvm.ObjectFree(made[1]);
  if (collage_tvm.ObjectTypeKey2Index("runtime.BoxInt", &box_int_type) != 0) box_int_type = UINT_MAX;
  return rc == 0 ? COLLAGE_OK : COLLAGE_ERROR;
}

// Turns a runtime.String in f->ret into its text. The object's reference is given up.
int collage_unbox_string(collage_frame* f) {
  if (!string_ok || f->ret_type != collage_tvm.string_type) return COLLAGE_NONE;
  string_object* s = f->ret.v_handle;
  int rc = collage_set_text(f, s->data, s->size);
  collage_tvm.ObjectFree(s);
  f->ret_code = kTVMStr;
  return rc;
}

int collage_array_size(void* array, int64_t* size) {
  if (!array_ok || type_of(array) != array_type) return COLLAGE_NONE;
  *size = ((array_object*)array)->size;
  return COLLAGE_OK;
}

// Leaves a new reference to item i, which must be in range, in the frame.
int collage_array_at(void* array, int64_t i, collage_frame* f) {
  f->ret.v_handle = ((array_object*)array)->items[i];
  if (!f->ret.v_handle) {
    f->ret_code = kTVMNullptr;
    return COLLAGE_OK;
  }
  f->ret_type = type_of(f->ret.v_handle);
  if (string_ok && f->ret_type == collage_tvm.string_type) {
    string_object* s = f->ret.v_handle;
    f->ret_code = kTVMStr;
    return collage_set_text(f, s->data, s->size);
  }
  // CbArgToReturn retains, and gives NDArrays, modules, functions and boxed numbers their own codes.
  f->ret_code = kTVMObjectHandle;
  if (collage_tvm.CbArgToReturn(&f->ret, &f->ret_code) != 0) return collage_fail(f);
  return COLLAGE_OK;
}

int collage_int_value(void* object, int64_t* out) {
  unsigned type = type_of(object);
  if (type == int_type && int_offset) {
    memcpy(out, (char*)object + int_offset, 8);
    return COLLAGE_OK;
  }
  if (type == box_int_type && collage_tvm.has_bool) {
    memcpy(out, (char*)object + OBJECT_HEADER, 8);
    return COLLAGE_OK;
  }
  return COLLAGE_NONE;
}

int collage_float_value(void* object, double* out) {
  if (!float_offset || type_of(object) != float_type) return COLLAGE_NONE;
  memcpy(out, (char*)object + float_offset, 8);
  return COLLAGE_OK;
}

// Writes the integers of an array to the frame's values (at most its capacity) and gives their number; an
// item that is no integer constant is written as otherwise and counted in ret_type. Gives -1 where the array
// cannot be read in place.
int64_t collage_array_ints(void* array, int64_t otherwise, collage_frame* f) {
  f->ret_type = 0;
  if (!array_ok || type_of(array) != array_type) return -1;
  array_object* a = array;
  for (int64_t i = 0; i < a->size && i < f->cap; i++) {
    int64_t* out = &f->values[i].v_int64;
    if (!a->items[i] || collage_int_value(a->items[i], out) != COLLAGE_OK) {
      *out = otherwise;
      ++f->ret_type;
    }
  }
  return a->size;
}
