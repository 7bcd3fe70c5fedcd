// Chains that move a hole through matchings; see linear_truth_device.py for what they do.
// nvcc makes each chain a thread of an accelerator, and a C++ compiler runs them one after another.

#include <cstdint>
#include <cstdlib>
#include <cstring>

#ifdef __CUDACC__
#define ON_DEVICE __device__
#define ADD(place, number) atomicAdd((unsigned long long *)(place), (unsigned long long)(number))
static int failed(cudaError_t code) { return code != cudaSuccess; }
#else
#define ON_DEVICE
#define ADD(place, number) (*(place) += (number))
#endif

struct Place {
  int32_t column;  // m if the row is unmatched
  int32_t since;   // the number of loops when the row took it
};

struct Chains {
  int32_t n, m1, count;         // rows, columns with the one of unmatched rows, chains
  uint32_t *keep;               // (n, m1) alias tables: probabilities in units of 2**-32
  int32_t *other;               // (n, m1) what is taken instead
  Place *places;                // (count, n)
  int32_t *rows;                // (count, m1), -1 if free; the last one is always free
  int32_t *heads;               // (count,) the row without a column, -1 in complete matchings
  int32_t *loops;               // (count,)
  uint64_t *random;             // (count,)
  unsigned long long *visits;   // (2, n, m1)
};

// Splitmix64.
ON_DEVICE static uint64_t draw(uint64_t *state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

ON_DEVICE static uint32_t below(uint64_t bits, uint32_t limit) {
  return (uint32_t)(((bits >> 32) * limit) >> 32);
}

ON_DEVICE static void begin(const Chains &c, int k, const int32_t *starts, int num_starts,
                            uint64_t seed) {
  int of_start = k < c.count / 2 ? 0 : 1 + k % (num_starts - 1);
  for (int j = 0; j < c.m1; ++j) c.rows[(int64_t)k * c.m1 + j] = -1;
  for (int i = 0; i < c.n; ++i) {
    int j = starts[(int64_t)of_start * c.n + i];
    c.places[(int64_t)k * c.n + i] = {j, 0};
    if (j < c.m1 - 1) c.rows[(int64_t)k * c.m1 + j] = i;
  }
  c.heads[k] = -1;
  c.loops[k] = 0;
  uint64_t mixed = seed + 0x632BE59BD9B4E019ull * (uint64_t)(k + 1);
  c.random[k] = draw(&mixed);
}

ON_DEVICE static void advance(const Chains &c, int k, int64_t moves, int counted) {
  Place *places = c.places + (int64_t)k * c.n;
  int32_t *rows = c.rows + (int64_t)k * c.m1;
  unsigned long long *visits = c.visits + (k < c.count / 2 ? 0 : (int64_t)c.n * c.m1);
  int32_t head = c.heads[k], loops = c.loops[k];
  uint64_t random = c.random[k];
  for (int64_t t = 0; t < moves; ++t) {
    if (head < 0) {
      head = (int32_t)below(draw(&random), (uint32_t)c.n);
      Place left = places[head];
      if (left.column < c.m1 - 1) rows[left.column] = -1;
      if (counted && loops > left.since)
        ADD(visits + (int64_t)head * c.m1 + left.column, loops - left.since);
    }
    uint64_t bits = draw(&random);
    int64_t entry = (int64_t)head * c.m1 + below(bits, (uint32_t)c.m1);
    int32_t column = (uint32_t)bits < c.keep[entry] ? (int32_t)(entry - (int64_t)head * c.m1)
                                                    : c.other[entry];
    int32_t holder = rows[column];
    places[head] = {column, loops};
    if (column < c.m1 - 1) rows[column] = head;
    if (holder < 0) {
      ++loops;
    } else if (counted) {
      int32_t since = places[holder].since;
      if (loops > since) ADD(visits + (int64_t)holder * c.m1 + column, loops - since);
    }
    head = holder;
  }
  c.heads[k] = head;
  c.loops[k] = loops;
  c.random[k] = random;
}

// Count what rows have held until now.
ON_DEVICE static void settle(const Chains &c, int k, int counted) {
  unsigned long long *visits = c.visits + (k < c.count / 2 ? 0 : (int64_t)c.n * c.m1);
  for (int i = 0; i < c.n; ++i) {
    Place *place = c.places + (int64_t)k * c.n + i;
    if (counted && i != c.heads[k] && c.loops[k] > place->since)
      ADD(visits + (int64_t)i * c.m1 + place->column, c.loops[k] - place->since);
    place->since = c.loops[k];
  }
}

#ifdef __CUDACC__
#define FOR_EACH(name, ...)                                               \
  int k = blockIdx.x * blockDim.x + threadIdx.x;                          \
  if (k < c.count) name(c, k, ##__VA_ARGS__)
__global__ void begin_all(Chains c, const int32_t *starts, int number, uint64_t seed) {
  FOR_EACH(begin, starts, number, seed);
}
__global__ void advance_all(Chains c, int64_t moves, int counted) {
  FOR_EACH(advance, moves, counted);
}
__global__ void settle_all(Chains c, int counted) { FOR_EACH(settle, counted); }
#define RUN(name, ...) name##_all<<<(chains->count + 127) / 128, 128>>>(*chains, ##__VA_ARGS__)
static int get(void **place, size_t size) { return failed(cudaMalloc(place, size)); }
static void give(void *place) { cudaFree(place); }
static int put(void *to, const void *from, size_t size) {
  return failed(cudaMemcpy(to, from, size, cudaMemcpyDefault));
}
static int done() { return failed(cudaDeviceSynchronize()) || failed(cudaGetLastError()); }
#else
#define RUN(name, ...) \
  for (int k = 0; k < chains->count; ++k) name(*chains, k, ##__VA_ARGS__)
static int get(void **place, size_t size) { return (*place = malloc(size)) == nullptr; }
static void give(void *place) { free(place); }
static int put(void *to, const void *from, size_t size) { return memcpy(to, from, size) != to; }
static int done() { return 0; }
#endif

extern "C" {

// Walker's alias tables of (n, m1) weights.
void alias_tables(int n, int m1, const double *weights, uint32_t *keep, int32_t *other) {
  double *share = (double *)malloc(m1 * sizeof(double));
  int32_t *small = (int32_t *)malloc(m1 * sizeof(int32_t));
  int32_t *large = (int32_t *)malloc(m1 * sizeof(int32_t));
  for (int i = 0; i < n; ++i) {
    const double *w = weights + (int64_t)i * m1;
    uint32_t *kept = keep + (int64_t)i * m1;
    int32_t *instead = other + (int64_t)i * m1;
    double total = 0.0;
    int heaviest = 0, smalls = 0, larges = 0;
    for (int j = 0; j < m1; ++j) {
      total += w[j];
      if (w[j] > w[heaviest]) heaviest = j;
    }
    for (int j = 0; j < m1; ++j) {
      share[j] = w[j] / total * m1;
      instead[j] = heaviest;
      kept[j] = w[j] > 0.0 ? UINT32_MAX : 0;
      if (share[j] < 1.0) small[smalls++] = j;
      else large[larges++] = j;
    }
    while (smalls && larges) {
      int j = small[--smalls], big = large[larges - 1];
      kept[j] = (uint32_t)(share[j] * 4294967295.0);
      instead[j] = big;
      share[big] -= 1.0 - share[j];
      if (share[big] < 1.0) {
        --larges;
        small[smalls++] = big;
      }
    }
  }
  free(share);
  free(small);
  free(large);
}

void end_chains(Chains *chains) {
  give(chains->keep);
  give(chains->other);
  give(chains->places);
  give(chains->rows);
  give(chains->heads);
  give(chains->loops);
  give(chains->random);
  give(chains->visits);
  free(chains);
}

// Returns null if there is no memory or no device.
Chains *begin_chains(int n, int m1, int count, const uint32_t *keep, const int32_t *other,
                     const int32_t *starts, int num_starts, uint64_t seed) {
  Chains *chains = (Chains *)calloc(1, sizeof(Chains));
  chains->n = n;
  chains->m1 = m1;
  chains->count = count;
  size_t cells = (size_t)n * m1;
  void *on_device = nullptr;
  int bad = get((void **)&chains->keep, cells * sizeof(uint32_t)) ||
            get((void **)&chains->other, cells * sizeof(int32_t)) ||
            get((void **)&chains->places, (size_t)count * n * sizeof(Place)) ||
            get((void **)&chains->rows, (size_t)count * m1 * sizeof(int32_t)) ||
            get((void **)&chains->heads, count * sizeof(int32_t)) ||
            get((void **)&chains->loops, count * sizeof(int32_t)) ||
            get((void **)&chains->random, count * sizeof(uint64_t)) ||
            get((void **)&chains->visits, 2 * cells * sizeof(unsigned long long)) ||
            get(&on_device, (size_t)num_starts * n * sizeof(int32_t)) ||
            put(chains->keep, keep, cells * sizeof(uint32_t)) ||
            put(chains->other, other, cells * sizeof(int32_t)) ||
            put(on_device, starts, (size_t)num_starts * n * sizeof(int32_t));
  if (!bad) {
    void *nothing = calloc(2 * cells, sizeof(unsigned long long));
    bad = put(chains->visits, nothing, 2 * cells * sizeof(unsigned long long));
    free(nothing);
    RUN(begin, (const int32_t *)on_device, num_starts, seed);
    bad = bad || done();
  }
  if (on_device) give(on_device);
  if (!bad) return chains;
  end_chains(chains);
  return nullptr;
}

// Makes so many moves of each chain; returns 0 if all went well.
int advance_chains(Chains *chains, int64_t moves, int counted) {
  RUN(advance, moves, counted);
  RUN(settle, counted);
  return done();
}

// Copies (2, n, m1) visits and (count,) numbers of loops; returns 0 if all went well.
int read_chains(Chains *chains, unsigned long long *visits, int32_t *loops) {
  size_t cells = (size_t)chains->n * chains->m1;
  return put(visits, chains->visits, 2 * cells * sizeof(unsigned long long)) ||
         put(loops, chains->loops, chains->count * sizeof(int32_t));
}
}
