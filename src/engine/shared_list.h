#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace gannet {

// A list whose copies share their elements, for what the samples of one prompt have in common: the prompt, and long
// lists of ids. Writing to one makes it a list of its own first.
template <class T>
class SharedList {
 public:
  using value_type = T;
  using const_iterator = typename std::vector<T>::const_iterator;

  SharedList() = default;
  SharedList(std::vector<T> values) : values_(std::make_shared<std::vector<T>>(std::move(values))) {}
  SharedList(std::initializer_list<T> values) : SharedList(std::vector<T>(values)) {}

  const std::vector<T>& values() const {
    static const std::vector<T> none;
    return values_ == nullptr ? none : *values_;
  }
  operator const std::vector<T>&() const { return values(); }

  size_t size() const { return values().size(); }
  bool empty() const { return values().empty(); }
  const_iterator begin() const { return values().begin(); }
  const_iterator end() const { return values().end(); }
  const T* data() const { return values().data(); }
  const T& operator[](size_t index) const { return values()[index]; }

  T& operator[](size_t index) { return own()[index]; }
  void resize(size_t size) { own().resize(size); }

  friend bool operator==(const SharedList& a, const SharedList& b) {
    return a.values_ == b.values_ || a.values() == b.values();
  }

 private:
  std::vector<T>& own() {
    if (values_.use_count() != 1) values_ = std::make_shared<std::vector<T>>(values());
    return *values_;
  }

  std::shared_ptr<std::vector<T>> values_;  // null: empty
};

}  // namespace gannet
