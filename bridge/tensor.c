// SPDX-License-Identifier: Apache-2.0
//
// NDArrays: TVM copies compact tensors only. Here a strided one is copied as the runs of memory that are
// contiguous in it.
#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum { kDLCPU = 1 };

static size_t item_size(DLDataType t) { return ((size_t)t.bits * t.lanes + 7) / 8; }

int collage_array_alloc(const int64_t* shape, int ndim, DLDataType dtype, DLDevice device, collage_frame* f) {
  void* out = NULL;
  if (collage_tvm.ArrayAlloc(shape, ndim, dtype.code, dtype.bits, dtype.lanes, device.device_type,
                             device.device_id, &out) != 0) {
    return collage_fail(f);
  }
  f->ret.v_handle = out;
  f->ret_code = kTVMNDArrayHandle;
  return COLLAGE_OK;
}

void collage_array_free(void* array) { collage_tvm.ArrayFree(array); }

void collage_release_array(void* array) {
  if (!collage_release_begins()) return;
  collage_tvm.ArrayFree(array);
  collage_release_ends();
}

// The number of innermost dimensions that lie in memory without gaps, and the items in them.
static int compact_tail(const DLTensor* t, int64_t* items) {
  int d = t->ndim;
  *items = 1;
  while (d > 0) {
    if (t->strides && t->shape[d - 1] != 1 && t->strides[d - 1] != *items) break;
    *items *= t->shape[--d];
  }
  return d;
}

int collage_tensor_is_compact(const DLTensor* t) {
  for (int d = 0; d < t->ndim; d++) {
    if (t->shape[d] == 0) return 1;
  }
  int64_t items;
  return compact_tail(t, &items) == 0;
}

int64_t collage_tensor_bytes(const DLTensor* t) {
  int64_t items = 1;
  for (int d = 0; d < t->ndim; d++) items *= t->shape[d];
  // TVM counts sub-byte types the same way: one item fills whole bytes.
  return items * (int64_t)item_size(t->dtype);
}

// Copies one contiguous run between host memory and t, at an offset from t's own start.
static int copy_run(const DLTensor* t, int64_t offset, char* host, int64_t size, int write,
                    collage_frame* f) {
  if (t->device.device_type == kDLCPU) {
    char* at = (char*)t->data + t->byte_offset + offset;
    if (write) {
      memcpy(at, host, (size_t)size);
    } else {
      memcpy(host, at, (size_t)size);
    }
    return COLLAGE_OK;
  }
  DLDataType byte = {1, 8, 1};
  DLTensor far = {t->data, t->device, 1, byte, &size, NULL, t->byte_offset + (uint64_t)offset};
  DLTensor near = {host, {kDLCPU, 0}, 1, byte, &size, NULL, 0};
  int rc = write ? collage_tvm.DeviceCopyDataFromTo(&near, &far, NULL)
                 : collage_tvm.DeviceCopyDataFromTo(&far, &near, NULL);
  return rc != 0 ? collage_fail(f) : COLLAGE_OK;
}

static int copy_all(const DLTensor* t, char* host, int write, collage_frame* f) {
  int64_t total = collage_tensor_bytes(t);
  if (total == 0) return COLLAGE_OK;
  int64_t run;
  int outer = compact_tail(t, &run);
  int64_t size = (int64_t)item_size(t->dtype);
  int64_t* index = calloc((size_t)outer + 1, sizeof *index);
  if (!index) {
    collage_set_text(f, "out of memory", 13);
    return COLLAGE_ERROR;
  }
  int rc = COLLAGE_OK;
  for (int64_t done = 0; done < total && rc == COLLAGE_OK; done += run * size) {
    int64_t offset = 0;
    for (int d = 0; d < outer; d++) offset += index[d] * t->strides[d];
    rc = copy_run(t, offset * size, host + done, run * size, write, f);
    for (int d = outer - 1; d >= 0 && ++index[d] == t->shape[d]; d--) index[d] = 0;
  }
  free(index);
  if (rc == COLLAGE_OK && t->device.device_type != kDLCPU &&
      collage_tvm.Synchronize(t->device.device_type, t->device.device_id, NULL) != 0) {
    return collage_fail(f);
  }
  return rc;
}

int collage_tensor_read(const DLTensor* t, void* out, collage_frame* f) { return copy_all(t, out, 0, f); }

int collage_tensor_write(const DLTensor* t, const void* in, collage_frame* f) {
  return copy_all(t, (char*)in, 1, f);
}

int collage_tensor_copy(void* from, void* to, collage_frame* f) {
  if (collage_tvm.ArrayCopyFromTo(from, to, NULL) != 0) return collage_fail(f);
  DLTensor *a = from, *b = to;
  DLDevice device = a->device.device_type == kDLCPU ? b->device : a->device;
  if (device.device_type != kDLCPU &&
      collage_tvm.Synchronize(device.device_type, device.device_id, NULL) != 0) {
    return collage_fail(f);
  }
  return COLLAGE_OK;
}

// A tensor on base's memory. It and its shape are one block, freed by collage_tensor_view_free; base must
// outlive it.
DLTensor* collage_tensor_view(const DLTensor* base, int ndim, const int64_t* shape, const int64_t* strides,
                              uint64_t byte_offset) {
  DLTensor* t = malloc(sizeof *t + sizeof(int64_t) * 2 * (size_t)ndim);
  if (!t) return NULL;
  *t = *base;
  t->ndim = ndim;
  t->shape = (int64_t*)(t + 1);
  t->strides = t->shape + ndim;
  if (ndim) {
    memcpy(t->shape, shape, sizeof(int64_t) * (size_t)ndim);
    memcpy(t->strides, strides, sizeof(int64_t) * (size_t)ndim);
  }
  t->byte_offset = base->byte_offset + byte_offset;
  return t;
}

void collage_tensor_view_free(DLTensor* t) { free(t); }
